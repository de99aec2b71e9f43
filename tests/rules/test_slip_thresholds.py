"""Rules about slips of the trainer at the edges of their thresholds, on tables made by hand."""

import pytest
from auditor.rules.cfg.modes import EvaluatedInTrainMode, TrainedInEvalMode
from auditor.rules.cfg.rows import SwitchedRow, TrainModeForwardRow
from auditor.rules.ckpt.resuming import KeptStateIsLive
from auditor.rules.ckpt.rows import KeptStateRow
from auditor.rules.data.datasets import FileReadAgain, TensorOfListOfArrays, WorkersDrawAlike
from auditor.rules.graph.left_out import OneBackwardForAll
from auditor.rules.graph.rows import SummedRow
from auditor.rules.kern.loops import ModuleLoop, ModuleLoops, ModulePieceByPiece
from auditor.rules.mem.peaks import AllDifferences
from auditor.rules.mem.rows import DifferencesRow
from auditor.rules.opt.gradients import ClippingMisplaced
from auditor.rules.opt.optimizer_kernels import ScheduleInEpochs
from auditor.rules.opt.rows import ClippingRow, SchedulerRow
from auditor.rules.time.storage_syncs import StorageWaitedFor

from auditor.evidence.recorded.batches import Batches, Loader
from auditor.evidence.recorded.lines import TrainingLoop
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Step, Steps
from auditor.evidence.source.files import Source
from auditor.model import Severity, Site
from auditor.recordings.schema.data import DrawsRow, ListedRow, RereadRow, SyncedRow
from tests.evidence.recorded.rows import batch
from tests.rules.asking import ask, lines, rows

CPU = Machine("cpu")
SITE = Site("train.py", 3)


PARTS = {"BatchNorm2d": 2, "Dropout": 1}


def switched(steps=3, text="", *, grads=False):
    row = SwitchedRow(at=0, module="Net", parts=PARTS, before=5, steps=steps, grads=grads)
    source = Source({"train.py": text})
    return list(ask(TrainedInEvalMode(), rows(row, sites=(SITE,)), source))


@pytest.mark.parametrize(("steps", "found"), [(2, 0), (3, 1)])
def test_cfg009_wants_so_many_steps_in_eval_mode(steps, found):
    findings = switched(steps=steps)
    assert len(findings) == found
    for finding in findings:
        assert "2 BatchNorm2d and 1 Dropout behave " in finding.message
        assert finding.steps == 3


LEAVES = """model.train()
def validate(model, was, best):
  model.eval()
  score = measure(model)
  if score <= best.score:
    return score
  best.score = score
  model.train()
  return score
def step():
  validate()
"""


@pytest.mark.parametrize(
    ("old", "new", "severity"),
    [
        ("", "", Severity.WARNING),
        ("  best.score = score\n", "\n", Severity.NOTE),  # another limit may never be reached
        ("  validate()", "  stop = validate()", None),
        ("score <= best.score", "not was", None),
        ("    return score\n", "    return model.train()\n", None),
        ("  model.eval()\n", "  model.train()\n  model.eval()\n", None),
        ("def step():", "def step():\n  model.train()", None),
        ("def step():\n", "while True:\n  model.train()\n", None),
        ("def validate", "@in_eval_mode\ndef validate", None),
        ("  score = measure", "  model.step()\n  score = measure", None),
    ],
)
def test_cfg009_knows_a_return_that_leaves_eval_mode_on(old, new, severity):
    text = LEAVES.replace(old, new, 1)
    row = SwitchedRow(at=0, module="Net", parts=PARTS, before=5, steps=0, grads=True, backs=[1])
    lines = text.splitlines()
    sites = (Site("train.py", lines.index("  model.eval()") + 1), Site("train.py", 8))
    findings = list(ask(TrainedInEvalMode(), rows(row, sites=sites), Source({"train.py": text})))
    assert [each.severity for each in findings] == [severity] * (severity is not None)


def test_cfg009_names_the_return_where_it_was_taken():
    row = SwitchedRow(at=0, module="Net", parts=PARTS, before=5, steps=9, grads=False)
    table = rows(row, sites=(Site("train.py", 3),))
    (finding,) = ask(TrainedInEvalMode(), table, Source({"train.py": LEAVES}))
    assert finding.site.line == 3
    assert [each.site.line for each in finding.places] == [3, 6]


EVALUATION = """def {}(x, y):
  with torch.no_grad():
    return criterion(model(x), y)
"""


@pytest.mark.parametrize(
    ("times", "named", "found"), [(5, False, 1), (6, False, 0), (6, True, 1), (10, True, 1)]
)
def test_cfg010_wants_an_evaluation_to_be_rare_or_named(times, named, found):
    row = TrainModeForwardRow(at=0, within=0, module="Net", parts=PARTS, times=times, steps=10)
    source = Source({"train.py": EVALUATION.format("validate" if named else "measure")})
    findings = list(ask(EvaluatedInTrainMode(), rows(row, sites=(SITE,)), source))
    assert len(findings) == found
    for finding in findings:
        assert "2 BatchNorm2d and 1 Dropout behave " in finding.message
        assert finding.steps == times


KEPT = """def main():
  for epoch in range(9):
    if loss < least: best = model.state_dict()
    train()




  model.load_state_dict(best)
"""


def kept(steps=9, text=KEPT, **more):
    facts = {"module": "Net", "taken": 2, "steps": steps, "loaded": 0, "loaded_at_once": 0}
    row = KeptStateRow(at=0, **(facts | more))
    places = rows(row, sites=(SITE, Site("train.py", 9)))
    return list(ask(KeptStateIsLive(), places, Source({"train.py": text})))


@pytest.mark.parametrize(("steps", "found"), [(1, 0), (2, 1)])
@pytest.mark.parametrize("loads", [0, 4])
def test_ckpt009_wants_so_many_steps_between(steps, found, loads):
    findings = kept(steps=steps, loaded=loads, loaded_at=1 if loads else None)
    assert len(findings) == found
    for finding in findings:
        assert ("4 times" in finding.message) == bool(loads)
        assert finding.steps == 2 and "train.py:9" in finding.message


def where(share, us, batches, *, in_worker):
    """Facts of a row whose calls take so many us of a step, or of a batch in a worker, and steps
    (10 watched ones) of which that is this share.
    """
    steps = tuple(Step(number, us / share) for number in range(10))
    n = batches if in_worker else len(steps)
    facts = {"us": n * us, "fetch_us": n * us / share if in_worker else 0.0}
    return facts | {"where": "worker" if in_worker else "step"}, Steps(quiet=steps, loud=steps)


def listed(share, us, *, in_worker=False, **more):
    facts, steps = where(share, us, 20, in_worker=in_worker)
    row = ListedRow(**({"at": 0, "n": 20, "arrays": 320, "numbers": 960_000} | facts | more))
    return list(ask(TensorOfListOfArrays(), rows(row, sites=(SITE,)), steps))


@pytest.mark.parametrize(
    ("share", "us", "found"), [(0.05, 100.0, 1), (0.049, 100.0, 0), (0.05, 99.0, 0)]
)
def test_data010_wants_a_share_and_a_time(share, us, found):
    assert len(listed(share, us)) == found
    assert len(listed(share, us, in_worker=True)) == found


def test_data010_says_nothing_of_a_few_numbers_or_of_no_call():
    assert listed(0.5, 3000.0, numbers=20 * 63) == []
    assert len(listed(0.5, 3000.0, numbers=20 * 64)) == 1
    assert listed(0.5, 3000.0, n=0) == listed(0.5, 3000.0, n=0, in_worker=True) == []


def test_data010_tells_a_line_behind_one_with_few_numbers():
    facts, steps = where(0.5, 3000.0, 20, in_worker=False)
    known = {"n": 20, "arrays": 320, "numbers": 960_000} | facts
    for few in ({"numbers": 20 * 63}, {"us": 0.0}):
        first, second = ListedRow(at=0, **(known | few)), ListedRow(at=1, **known)
        both = rows(first, second, sites=(SITE, Site("train.py", 9)))
        assert [each.site.line for each in ask(TensorOfListOfArrays(), both, steps)] == [9]


MADE = """class Rows:
  def __init__(self):
    self.rng = {}
loader = DataLoader(Rows(), num_workers=2)
"""


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        (MADE.format("np.random.default_rng(3)"), "dataset.rng", 3),
        (MADE.format("random.Random(3) if seed else None"), "dataset.parts[0].rng", 3),
        (MADE.format("torch.Generator().manual_seed(1)"), "rows.dataset.rng", 3),
        (MADE.format("rng"), "dataset.rng", 9),
        (MADE.format("random.Random(3)"), "dataset.other", 9),
        (MADE.format("random.Random(3)") + "rng = random.Random(4)\n", "dataset.rng", 3),
        (MADE.format("random.Random(3)").replace("Rows:", "Other:"), "dataset.rng", 9),
        (MADE.format("random.Random(3)") * 2, "dataset.rng", 9),
    ],
)
def test_data011_points_at_the_line_that_makes_the_generator_or_at_the_loader(text, name, line):
    row = DrawsRow(loader=3, name=name, kind="random.Random", workers=[0, 1, 3], owner="a.Rows")
    loaders = Batches(loaders=(Loader(3, made_at=Site("train.py", 9), workers=4),))
    (finding,) = ask(WorkersDrawAlike(), rows(row), loaders, Source({"train.py": text}))
    assert finding.site.line == line and finding.message.startswith("3 workers")
    assert ("train.py:9" in finding.message) == (line != 9)


@pytest.mark.parametrize(
    ("loaders", "line"), [((Loader(3, consumed_at=SITE),), 3), ((Loader(0),), 0), ((), 0)]
)
def test_data011_knows_no_line_of_a_loader_that_nobody_saw_made(loaders, line):
    row = DrawsRow(loader=3, name="rng", kind="random.Random", workers=[0, 1])
    (finding,) = ask(WorkersDrawAlike(), rows(row), Batches(loaders=loaders))
    assert (finding.site.line if finding.site else 0) == line


def looped(module="Net", **more):
    head = Site("train.py", 2, "", "for x in states:")
    facts = {"turns": 8, "elements": 8192, "share": 0.05, "recurrent": False, "same": True}
    loop = ModuleLoop(SITE, head, module=module, **{**facts, **more}, steps=3)
    rule = ModulePieceByPiece()
    return [(each, rule.remedy(each)) for each in ask(rule, ModuleLoops(3, (loop,)))]


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, 1),
        ({"turns": 7}, 0),
        ({"share": 0.049}, 0),
        ({"elements": 8193}, 0),
        ({"same": False}, 0),
        ({"module": "GRUCell", "recurrent": True, "same": False, "elements": 99_999}, 1),
    ],
)
def test_kern007_wants_turns_a_share_and_small_pieces(more, found):
    findings = looped(**more)
    assert len(findings) == found
    for finding, _ in findings:
        assert finding.per_step == 8.0
        assert [place.site.line for place in finding.places] == [2, 3]


def test_kern007_names_what_takes_the_whole_sequence():
    ((finding, remedy),) = looped("LSTMCell", recurrent=True)
    assert "a sequence of 8 pieces" in finding.message and "nn.LSTM" in remedy.text
    ((finding, remedy),) = looped()
    assert "8 times a step" in finding.message and "vmap" in remedy.text


UNIT = 1 << 16


@pytest.mark.parametrize(
    ("sums", "each_bytes", "leaf_bytes", "found"),
    [
        ([(0, 4 * UNIT), (1, 4 * UNIT)], UNIT, 3 * UNIT, 1),
        ([(0, 4 * UNIT)], UNIT, 3 * UNIT, 0),
        ([(0, 4 * UNIT), (1, 4 * UNIT)], UNIT - 1, 1, 0),
        ([(0, 4 * UNIT), (1, 4 * UNIT)], UNIT, 3 * UNIT + 1, 0),
        ([(0, 4 * UNIT), (0, 4 * UNIT)], UNIT, 3 * UNIT, 0),  # two steps
        ([(0, 5 * UNIT), (1, 4 * UNIT)], UNIT, 3 * UNIT, 1),  # the smallest sum of a line
        ([(0, 4 * UNIT), (1, 4 * UNIT - 1)], UNIT, 3 * UNIT, 0),
    ],
)
def test_graph008_wants_steps_and_bytes(sums, each_bytes, leaf_bytes, found):
    facts = {"at": 0, "n": 4, "each_bytes": each_bytes, "leaf_bytes": leaf_bytes}
    seen = [SummedRow(step=step, saved_bytes=saved, **facts) for step, saved in sums]
    findings = list(ask(OneBackwardForAll(), rows(*seen, sites=(SITE,))))
    told = [(each.lost_bytes, each.basis, "4 losses" in each.message) for each in findings]
    assert told == [(3 * UNIT, "measured", True)] * found


def reread(share, us, again=0.5, *, in_worker=False, **more):
    facts, steps = where(share, us, 25, in_worker=in_worker)
    facts |= {"n": 400, "batches": 25, "again": round(400 * again), "path": "/data/a.npy"}
    row = RereadRow(**({"at": 0, "name": "numpy.load", "bytes": 1 << 20} | facts | more))
    return list(ask(FileReadAgain(), rows(row, sites=(SITE,)), steps))


@pytest.mark.parametrize(
    ("share", "us", "again", "found"),
    [(0.1, 200.0, 0.5, 1), (0.099, 200.0, 0.5, 0), (0.1, 199.0, 0.5, 0), (0.1, 200.0, 0.49, 0)],
)
def test_data012_wants_a_share_a_time_and_reads_of_the_same_file(share, us, again, found):
    assert len(reread(share, us, again)) == found
    assert len(reread(share, us, again, in_worker=True)) == found


def test_data012_has_a_price_in_the_step_and_is_a_note_in_a_worker():
    (finding,) = reread(0.5, 3000.0, 0.75)
    assert (finding.lost_us_per_step, finding.basis, finding.severity) == (2250, "estimated", None)
    assert "a.npy, 1 MiB) again and again, 16 times a step: 3 ms, 50% of it" in finding.message
    (finding,) = reread(0.5, 3000.0, in_worker=True)
    assert (finding.lost_us_per_step, finding.severity) == (None, Severity.NOTE)
    assert "16 times for a batch: 3 ms, 50% of a worker's time for it" in finding.message


def synced(us, number, step_us=8000.0, steps=8, machine=CPU, loop=None):
    sites = SITE, Site("train.py", 90)
    each = (
        SyncedRow(at=0, name="os.fsync", step=step, n=2, us=us, stack=[1, 0])
        for step in range(number)
    )
    table = lines(*each, sites=sites, of=steps, step_us=step_us)
    return list(ask(StorageWaitedFor(), table, machine, loop or TrainingLoop()))


@pytest.mark.parametrize(
    ("us", "number", "steps", "found"),
    [(200.0, 2, 8, 1), (199.0, 2, 8, 0), (400.0, 1, 4, 0), (400.0, 1, 8, 0), (200.0, 2, 9, 0)],
)
def test_time004_wants_a_share_and_a_quarter_of_the_steps(us, number, steps, found):
    assert len(synced(us, number, steps=steps)) == found


def test_time004_names_the_call_in_the_loop():
    (finding,) = synced(200.0, 8)
    assert finding.message == "os.fsync takes 20% of the step time: 100 us a call, on 8 of 8 steps"
    assert finding.places == ()
    (finding,) = synced(200.0, 8, loop=TrainingLoop(one_step=True))
    assert [place.site.line for place in finding.places] == [3, 90]


def differences(nbytes=1 << 20, kind="squares", *, graph=True):
    seen = (
        DifferencesRow(step=step, at=0, kind=kind, size=16, bytes=nbytes, graph=graph)
        for step in range(3)
    )
    return list(ask(AllDifferences(), rows(*seen, sites=(SITE,))))


@pytest.mark.parametrize(("nbytes", "found"), [(1 << 20, 1), ((1 << 20) - 1, 0)])
def test_mem016_wants_so_many_bytes(nbytes, found):
    assert len(differences(nbytes)) == found


def test_mem016_has_one_finding_for_each_line_and_kind():
    def row(step, at=0, kind="squares", mib=1, *, graph=False):
        return DifferencesRow(step=step, at=at, kind=kind, bytes=mib << 20, size=8, graph=graph)

    seen = [row(0), row(0, mib=3, graph=True), row(1), row(2, at=1), row(0, kind="absolute")]
    found = list(ask(AllDifferences(), rows(*seen, sites=(SITE, Site("train.py", 5)))))
    told = [(each.site.line, each.per_step, each.steps) for each in found]
    assert told == [(3, 1.0, 1), (3, 1.5, 2), (5, 1.0, 1)]
    assert ["keeps them" in each.message for each in found] == [False, True, False]
    assert ["3 MiB" in each.message for each in found] == [False, True, False]


@pytest.mark.parametrize(
    ("steps", "n", "absent", "found"),
    [(10, 5, True, 1), (10, 4, True, 0), (4, 3, False, 1), (2, 2, False, 0)],
)
def test_opt006_wants_a_share_of_the_steps_and_so_many(steps, n, absent, found):
    line = ClippingRow(at=0, optimizer="Adam", steps=steps, n=n, absent=absent)
    rule = ClippingMisplaced()
    findings = list(ask(rule, rows(line, sites=(SITE,))))
    assert len(findings) == found
    for finding in findings:
        assert ("there was no gradient yet" in finding.message) == absent
        assert (finding.steps, finding.per_step) == (n, n / steps)
        assert ("after the backward" in rule.remedy(finding).text) == absent
    other = ClippingRow(at=0, optimizer="SGD", steps=steps, n=n, absent=absent)
    assert len(list(ask(rule, rows(line, other, sites=(SITE,))))) == found, "a line is told once"


def test_opt006_names_the_line_of_the_step_too():
    line = ClippingRow(at=1, optimizer="Adam", steps=9, n=9, absent=False, stepped_at=0)
    sites = Site("train.py", 8), Site("train.py", 3)
    (finding,) = ask(ClippingMisplaced(), rows(line, sites=sites))
    assert (finding.site.line, [each.site.line for each in finding.places]) == (3, [3, 8])


def fed(length=None, given={0: 1}, steps=8):
    """Batches that loaders gave in so many steps."""
    loud = [batch(k, step, n=n) for step in range(steps) for k, n in given.items() if n]
    loaders = tuple(Loader(number, length=length) for number in given)
    return Batches(loaders=loaders, loud=tuple(loud))


def scheduled(name="CosineAnnealingLR", calls=10, apart=1, epoch=10, batches=None, **more):
    facts = {"steps": apart * (calls - 1), "apart": apart, "epoch": epoch, "in_pass": 8}
    row = SchedulerRow(at=0, name=name, calls=calls, **(facts | more))
    rule = ScheduleInEpochs()
    found = ask(rule, rows(row, sites=(SITE,)), batches or fed())
    return [(finding.message, rule.remedy(finding).text) for finding in found]


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"period": 10, "epoch": 10}, 1),  # seen down and up again
        ({"period": 10, "epoch": 9}, 0),
        ({"period": 10, "epoch": 9, "batches": fed(20)}, 1),
        ({"period": 10, "epoch": 9, "batches": fed(19)}, 0),
        ({"period": 10, "epoch": 20, "calls": 5}, 1),
        ({"period": 10, "epoch": 20, "calls": 4}, 0),
        ({"gone": 50, "batches": fed(100)}, 1),
        ({"gone": 50, "batches": fed(17)}, 1),
        ({"gone": 50, "batches": fed(16)}, 0),
        ({"gone": 50, "batches": fed(100), "in_pass": 0}, 0),
        ({"gone": 50, "batches": fed(100), "steps": 10}, 0),
        ({"gone": 50, "batches": fed(100), "apart": 0, "steps": 9}, 0),
        ({"gone": 50}, 0),
        ({"gone": 1, "batches": fed(99), "apart": 2}, 0),
        ({"apart": 5, "epoch_of": 5}, 1),
        ({"apart": 5, "epoch_of": 6}, 0),
        ({"apart": 4, "epoch_of": 4}, 0),
        ({"apart": 9}, 0),
    ],
)
def test_opt007_wants_swings_or_a_rate_that_is_gone_or_an_epoch_that_was_said(more, found):
    assert len(scheduled(**more)) == found


@pytest.mark.parametrize(("epoch", "severity"), [(100, None), (99, Severity.NOTE)])
def test_opt007_notes_a_rate_that_is_gone_after_half_an_epoch(epoch, severity):
    facts = {"calls": 10, "steps": 9, "apart": 1, "epoch": 10, "in_pass": 8, "gone": 50}
    row = SchedulerRow(at=0, name="StepLR", **facts)
    (finding,) = ask(ScheduleInEpochs(), rows(row, sites=(SITE,)), fed(epoch))
    assert finding.severity == severity


def test_opt007_says_how_often_and_where_it_belongs():
    ((message, remedy),) = scheduled(period=10, epoch=20)
    assert "(T_max=5)" in message and "every 10 steps" in message and "once per epoch" in remedy
    ((message, remedy),) = scheduled("StepLR", gone=50, batches=fed(100))
    assert "after 50 steps, but one epoch has 100" in message and "len(loader)" in remedy
    ((message, remedy),) = scheduled("OneCycleLR", apart=7, epoch_of=5)
    assert "steps_per_epoch=5" in message and "once in 7 optimizer steps" in message
    assert remedy == "Call its step() after the optimizer's, with each batch."


@pytest.mark.parametrize(
    ("given", "epoch"),
    [({0: 1}, 400), ({0: 4}, 100), ({0: 4, 1: 1}, 100), ({0: 3, 1: 1}, None), ({}, None)],
)
def test_opt007_takes_the_loader_that_gave_nearly_all_batches(given, epoch):
    found = scheduled(gone=1, batches=fed(400, given))
    assert [f"one epoch has {epoch}" in message for message, _ in found] == [True] * bool(epoch)
