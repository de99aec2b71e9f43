"""What a run of audit plan changes, what it writes down, and that all is put back."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from auditor.capture.probes.compare.planned import PlannedChangeProbe, class_name
from auditor.runs.plan import Change
from tests.capture.drive import Drive, line_of, load, watched

MODEL = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        return x + self.inner(x).relu()

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
    def forward(self, x, *, scale=None):
        for block in self.blocks:
            x = block(x)  # CALLED
        return x if scale is None else x * scale

torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # MADE
batch = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))

def step():
    with torch.no_grad():
        model(batch[:2])
    optimizer.zero_grad()
    model(batch, scale=torch.ones(1)).sum().backward()
    optimizer.step()
"""

LOADERS = """
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset
import framework

data = TensorDataset(torch.arange(20).float())
train = DataLoader(data, batch_size=4, shuffle=True)  # TRAIN
valid = DataLoader(data, batch_size=4)
cut = DataLoader(  # CUT
    data, batch_sampler=BatchSampler(SequentialSampler(data), 2, False)
)
rebuilt = framework.prepare(train)
"""

FRAMEWORK = """
from torch.utils.data import DataLoader

def prepare(loader):
    return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler)
"""


def changing(change):
    class Changing(PlannedChangeProbe):
        def __init__(self, context):
            context.plan = replace(context.plan, purpose=change)
            super().__init__(context)

    return Changing


def trained(tmp_path, change, steps=2):
    program, drive = watched(tmp_path, MODEL, changing(change), steps=steps)
    return program, drive.rows("planned")


def of(rows, what):
    return [row for row in rows if row["what"] == what]


def test_what_the_step_is_made_of(tmp_path):
    program, rows = trained(tmp_path, Change())
    inputs = of(rows, "input")
    assert [row["shapes"] for row in inputs] == [[[6, 4], [1]]] * 2
    assert {(row["module"], row["autocast"], row["halvable"]) for row in inputs} == {
        ("Model", False, True)
    }
    (blocks,) = of(rows, "blocks")
    assert blocks["name"] == class_name(program.Block)
    assert (blocks["n"], blocks["bytes"]) == (3, 80)
    assert blocks["at_line"] == line_of(program, "CALLED")
    (optimizer,) = of(rows, "optimizer")
    assert optimizer["name"] == "SGD" and optimizer["takes"] == ["foreach", "fused"]
    assert optimizer["at_line"] == line_of(program, "MADE")
    assert not of(rows, "changed")


def test_checkpointed_blocks_run_again_in_the_backward_and_learn_the_same(tmp_path):
    plain, _ = trained(tmp_path, Change())
    with Drive(tmp_path, PlannedChangeProbe) as drive:
        program = load(tmp_path, MODEL)
        name = class_name(program.Block)
    with Drive(tmp_path, changing(Change(checkpointed=name))) as drive:
        drive.run("loud", program.step, 2)
        rows = drive.rows("planned")
    assert [row["n"] for row in of(rows, "changed")] == [3, 6]
    assert [block.calls for block in program.model.blocks] == [6, 6, 6]  # two without gradients
    assert [block.calls for block in plain.model.blocks] == [4, 4, 4]
    for ours, theirs in zip(program.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_optimizers_take_the_setting(tmp_path):
    program, rows = trained(tmp_path, Change(optimizer={"foreach": False}))
    assert program.optimizer.param_groups[0]["foreach"] is False
    assert of(rows, "optimizer")[0]["off"] == ["foreach"]
    assert of(rows, "changed")[-1]["name"] == "optimizer"


@pytest.mark.parametrize(
    ("largest", "lengths", "taken", "of_batches"),
    [
        (True, [1, 1, 2, 1, 9, 1], [1, 9, 2], 6),
        (True, [1] * 6, [1, 1, 1], 0),
        (False, [1, 1, 9], [1, 1], 0),
    ],
)
def test_the_largest_batch_comes_after_the_warm_up(tmp_path, largest, lengths, taken, of_batches):
    batches = iter(DataLoader([torch.ones(n) for n in lengths], 1))
    with Drive(tmp_path, changing(Change(largest=largest))) as drive:
        sizes = []
        drive.run("warmup", lambda: sizes.append(next(batches).numel()), steps=1)
        drive.run("loud", lambda: sizes.append(next(batches).numel()), steps=len(taken) - 1)
        changed = of(drive.rows("planned"), "changed")
    assert sizes == taken
    assert {row["n"] for row in changed if row["name"] == "largest"} == {of_batches} - {0}
    assert next(batches).numel() == lengths[len(taken)]  # the loader gives its own again


def test_all_is_put_back(tmp_path):
    before = nn.Module.__call__, DataLoader.__init__, torch.optim.AdamW.__init__
    change = Change((2, 1), (("train.py", 1),), "x:Y", "", {"foreach": False})
    with Drive(tmp_path, changing(change)):
        assert nn.Module.__call__ is not before[0]
        assert DataLoader.__init__ is not before[1]
    assert (nn.Module.__call__, DataLoader.__init__, torch.optim.AdamW.__init__) == before


@pytest.fixture
def loaders(tmp_path, monkeypatch):
    """Loads the program of loaders with the batch sizes of some lines changed."""
    from tests.capture.drive import framework

    monkeypatch.chdir(tmp_path)
    framework(tmp_path, FRAMEWORK)
    plain = load(tmp_path, LOADERS)

    def changed(batch, *marks):
        lines = tuple((f"train{batch}.py", line_of(plain, mark)) for mark in marks)
        (tmp_path / f"train{batch}.py").write_text(LOADERS.lstrip("\n"))
        found = {}
        with Drive(tmp_path, changing(Change((batch, 4), lines))) as drive:
            file = tmp_path / f"train{batch}.py"
            exec(compile(file.read_text(), str(file), "exec"), found)
            with drive.running("loud"):
                drive.step(lambda: None)
            counted = [row["n"] for row in of(drive.rows("planned"), "changed")]
        return found, counted

    return changed


def sizes(loader):
    return [len(batch[0]) for batch in loader]


def test_a_batch_sampler_cuts_larger_ones(loaders):
    found, counted = loaders(8, "TRAIN", "CUT")
    assert sizes(found["cut"]) == [4] * 5
    assert counted == [2]


@pytest.mark.parametrize(("batch", "given"), [(2, [2] * 10), (8, [8] * 8), (40, [40] * 8)])
def test_a_small_dataset_gives_its_samples_again(loaders, batch, given):
    found, _ = loaders(batch, "TRAIN")
    assert sizes(found["train"]) == given
