"""Which optimizer a program goes on without, by its source."""

import textwrap

import pytest
from auditor.rules.ckpt.resuming import resumes

from auditor.evidence.source.files import Source

PROGRAM = """
    import torch

    def save_checkpoint(path, epoch, model, optimizer, scheduler):
        state = {
            "epoch": epoch,
            "weights": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
        }
        torch.save(state, path)

    def resume(path, model, optimizer, scheduler):
        saved = torch.load(path)
        model.load_state_dict(saved["weights"])
        optimizer.load_state_dict(saved["optimizer"])
        scheduler.load_state_dict(saved["scheduler"])
        return saved["epoch"]

    def main(args, model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, epochs=args.epochs)
        start = resume(args.path, model, optimizer, scheduler) if args.path else 0
        for epoch in range(start, args.epochs):
            train(model, optimizer)
            scheduler.step()
            save_checkpoint(args.out, epoch + 1, model, optimizer, scheduler)
"""
SAVED = '            "optimizer": optimizer.state_dict(),\n'
LOADED = '        optimizer.load_state_dict(saved["optimizer"])\n'
SCHEDULE = '            "scheduler": scheduler.state_dict(),\n'
SCHEDULE_LOADED = '        scheduler.load_state_dict(saved["scheduler"])\n'

NOTEBOOK = """
    import torch
    from torch import optim

    net = Net()
    opt = optim.Adam(net.parameters())
    first = 0
    if resuming:
        snapshot = torch.load("last.pt")
        net.load_state_dict(snapshot.get("net"))
        first = snapshot.get("step", -1) + 1
    for step in range(first, 1000):
        learn(net, opt)
        torch.save({"net": net.state_dict(), "step": step}, "last.pt")
"""

CLASS = """
    import torch

    class Trainer:
        def __init__(self, net):
            self.net = net
            self.solver = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            self.rates = torch.optim.lr_scheduler.StepLR(self.solver, 30)
            self.current_epoch = 0

        def save(self):
            torch.save(self.collect(), "last.pt")

        def collect(self):
            return {"current_epoch": self.current_epoch, "net": self.net.state_dict()}

        def load(self):
            snapshot = torch.load("last.pt")
            self.net.load_state_dict(snapshot["net"])
            self.current_epoch = snapshot["current_epoch"]

        def fit(self):
            while self.current_epoch < 90:
                self.train_one_epoch()
                self.rates.step()
                self.current_epoch += 1
"""
INLINE = CLASS.replace(
    "torch.save(self.collect(), ",
    'torch.save({"current_epoch": self.current_epoch, "net": self.net.state_dict()}, ',
)


def without(program: str, *lines: str) -> str:
    for line in lines:
        assert line in program
        program = program.replace(line, "")
    return program


def lacking(program: str) -> list[str]:
    found = resumes(Source({"train.py": textwrap.dedent(program)}))
    return [each.kind for each in found.unsaved]


NO_OPTIMIZER = without(PROGRAM, SAVED, LOADED)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (NO_OPTIMIZER, ["AdamW"]),
        (without(NO_OPTIMIZER, SCHEDULE, SCHEDULE_LOADED), ["AdamW"]),
        (NOTEBOOK, ["Adam"]),
        (INLINE, ["SGD"]),
        # the name of the number changes on its way to the loop
        (
            NO_OPTIMIZER.replace("range(start,", "range(begin,").replace(
                "        for epoch", "        begin = start\n        for epoch"
            ),
            ["AdamW"],
        ),
        (NO_OPTIMIZER.replace("model.state_dict()", "unwrapped(model).state_dict()"), ["AdamW"]),
    ],
)
def test_what_is_never_saved(program, expected):
    assert lacking(program) == expected


MODEL_ONLY = "torch.save(model.state_dict(), path)"

SILENT = {
    "the schedule is not saved": without(PROGRAM, SCHEDULE, SCHEDULE_LOADED),
    "all is saved": PROGRAM,
    "weights for inference": without(NO_OPTIMIZER, '            "epoch": epoch,\n').replace(
        'return saved["epoch"]', "return 0"
    ),
    "the counter is only printed": NO_OPTIMIZER.replace(
        'return saved["epoch"]', 'print(f"of epoch {saved["epoch"]}")'.replace('"epoch"', "'epoch'")
    ),
    "the counter is returned, and no loop begins there": NO_OPTIMIZER.replace(
        "range(start, args.epochs)", "range(args.epochs)"
    ),
    "fine-tuning begins at 0": NO_OPTIMIZER.replace('return saved["epoch"]', "return 0"),
    "saved beside it": NO_OPTIMIZER.replace(
        "torch.save(state, path)",
        'torch.save(state, path)\n        torch.save(args.optim.state_dict(), "optim.pt")',
    ),
    "added to the dictionary later": NO_OPTIMIZER.replace(
        "torch.save(state, path)",
        'state["o"] = optimizer.state_dict()\n        torch.save(state, path)',
    ),
    "all parts in one comprehension": NO_OPTIMIZER.replace(
        "torch.save(state, path)",
        "state.update({n: p.state_dict() for n, p in parts.items()})\n        torch.save(state, path)",
    ),
    "under another name, in a function": NO_OPTIMIZER.replace(
        "torch.save(state, path)", "extra(state, optimizer)\n        torch.save(state, path)"
    )
    + """
    def extra(state, thing):
        state["thing"] = thing.state_dict()
""",
    "the object itself": NO_OPTIMIZER.replace(
        '"epoch": epoch,', '"epoch": epoch,\n            "all": [optimizer],'
    ),
    "a save that nobody can read": NO_OPTIMIZER
    + """
    def finish(trainer):
        torch.save(vars(trainer), "all.pt")
""",
    "a dictionary with parts of another": NO_OPTIMIZER.replace(
        '"epoch": epoch,', '"epoch": epoch,\n            **more,'
    ),
    "a library saves it": NO_OPTIMIZER
    + """
    def also(accelerator):
        accelerator.save_state("all")
""",
    "no moments": NO_OPTIMIZER.replace("torch.optim.AdamW(", "torch.optim.SGD("),
    "momentum of 0": NO_OPTIMIZER.replace("AdamW(", "SGD(").replace(
        "lr=1e-3)", "lr=1e-3, momentum=0)"
    ),
    "an optimizer of each round": NO_OPTIMIZER.replace(
        "train(model, optimizer)",
        "optimizer = torch.optim.AdamW(model.parameters())\n            train(model, optimizer)",
    ),
    "made in a function that a loop calls": NO_OPTIMIZER
    + """
    for fold in range(5):
        main(folds[fold], make())
""",
    "no load at all": without(NO_OPTIMIZER, '        model.load_state_dict(saved["weights"])\n'),
}


@pytest.mark.parametrize("why", SILENT)
def test_near_misses(why):
    assert lacking(SILENT[why]) == []


@pytest.mark.parametrize(
    ("program", "looked"),
    [
        (PROGRAM, True),
        (NO_OPTIMIZER, True),
        (MODEL_ONLY, False),
        ("x = 1", False),
        ("x = (", False),
    ],
)
def test_clean_means_that_there_is_such_a_checkpoint(program, looked):
    assert resumes(Source({"train.py": textwrap.dedent(program)})).looked is looked
