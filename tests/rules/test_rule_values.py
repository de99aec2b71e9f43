"""Values of findings that no case tells apart: counts, words that depend on a case, both sides of
what decides, on tables made by hand.
"""

from dataclasses import replace

import pytest
from auditor.rules.cfg.modes import DropoutInEvaluation
from auditor.rules.ckpt.files import (
    CheckpointOverridesRate,
    OptimizerMomentsSpoiled,
)
from auditor.rules.dist.rank_batches import SteppedUnaveraged
from auditor.rules.dist.rows import CollectiveRow
from auditor.rules.num.formulas import UnstableFormula
from auditor.rules.num.nonfinite import WeightsPoisoned
from auditor.rules.opt.optimizer_kernels import (
    ClippingOfAnEmptyGenerator,
    ScheduleInEpochs,
    SchedulerBeforeOptimizer,
)
from auditor.rules.opt.rows import SchedulerRow

from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.evidence.recorded.amp import OpRanges
from auditor.evidence.recorded.batches import Batches
from auditor.evidence.recorded.data_parallel import Apart, DataParallel, DataParallelModule
from auditor.evidence.scans import (
    ElementCounts,
    OptimizerFacts,
    Scan,
    SchedulerFacts,
    Setting,
    TensorFacts,
)
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.model import Severity, Site
from auditor.recordings.schema.graph import CensusRow
from auditor.recordings.schema.run import TorchWarningRow
from tests.rules.asking import ask, delicate, loud, rows

LINE, OTHER = Site("t.py", 3, "step"), Site("t.py", 9, "step")
SITES = (LINE, OTHER)


# -- modes -----------------------------------------------------------------------------------------

FORWARD = "class Net:\n    def {}:\n        x = {}\n"


@pytest.mark.parametrize(
    ("head", "line", "meant", "edited"),
    [
        ("forward(self, x)", "F.dropout(x)", False, True),
        ("forward(self, x)", "F.dropout(x, 0.5)", False, True),
        ("forward(self, x)", "F.dropout(x, 0.5, True)", True, False),
        ("forward(self, x)", "F.dropout(x, training=True)", True, False),
        ("forward(self, x)", "F.dropout(x, **more)", False, False),
        ("forward(self, x)", "F.dropout(x) + F.dropout(y)", False, False),
        ("forward(net, x)", "F.dropout(x)", False, False),
        ("other(self, x)", "F.dropout(x)", False, False),
        ("forward(self, x)", "self.drop(x, training=True)", False, False),
        ("forward(self, x)", "self.drop(a, b, c)", False, False),
    ],
)
def test_dropout_in_an_evaluation_is_meant_where_the_call_decides(head, line, meant, edited):
    source = Source({"t.py": FORWARD.format(head, line)})
    row = rows(CensusRow(at=0, kind="dropout", name="dropout"), sites=SITES)
    (finding,) = ask(DropoutInEvaluation(), row, source)
    assert finding.severity is (Severity.NOTE if meant else None)
    assert len(finding.remedy.edits) == edited
    meant_row = rows(CensusRow(at=0, kind="dropout", name="x", meant=True), sites=SITES)
    (note,) = ask(DropoutInEvaluation(), meant_row, source)
    assert note.severity is Severity.NOTE and not note.remedy.edits


def replace_row(row, **more):
    fields = {name: getattr(row, name) for name in row.__struct_fields__}
    return type(row)(**(fields | more))


# -- checkpoints -----------------------------------------------------------------------------------


def checkpoint(*tensors, name="a.pt", **facts):
    return Checkpoint(Scan(path=f"/r/{name}", format="torch zip", size=9, tensors=tensors, **facts))


def moment(high, name="0", nan=0):
    tally = ElementCounts(2, nan=nan, low=0.0, high=high)
    place = ("opt", "state", "exp_avg_sq")
    return TensorFacts(f"opt.state[{name}]", "float32", (2,), "optimizer", tally, place)


@pytest.mark.parametrize(
    ("highs", "steps", "said"),
    [
        ((0.0, 1.0), 10, ["opt.state[0] is zero after 10 steps"]),
        ((0.0, 1.0), 9, []),
        ((0.0, 0.0, 1.0), 10, ["opt.state[0] (and 1 more of 3) is zero"]),
        ((1.01e12, 1.0, 1.0), 1, ["opt.state[0] is large"]),
        ((1e12, 1.0, 1.0), 1, []),  # a million times, not more
        ((1.01e12, 1.0), 1, []),
        ((4e12, 0.0, 1.0, 1.0), 1, ["opt.state[0] is large"]),
        ((1.0, 1.0, 1.0), 99, []),
    ],
)
def test_moments_out_of_proportion(highs, steps, said):
    given = checkpoint(
        *(moment(high, str(n)) for n, high in enumerate(highs)),
        optimizers=(OptimizerFacts("opt", steps=steps),),
    )
    found = list(ask(OptimizerMomentsSpoiled(), Checkpoints((checkpoint(), given))))
    assert [each.message.startswith(f"a.pt: {words}") for each, words in zip(found, said)] == [
        True
    ] * len(said)
    assert len(found) == len(said) and all(each.steps == 1 for each in found)


@pytest.mark.parametrize(
    ("number", "more"),
    [(1, "NaN (it holds 1 tensor)"), (2, ", and 1 more tensor ("), (3, ", and 2 more tensors")],
)
def test_weights_that_are_poisoned_in_one_checkpoint_of_two(number, more):
    bad = [
        TensorFacts(f"w{n}", "float32", (2,), "model", ElementCounts(4, nan=n + 1))
        for n in range(number)
    ]
    table = Checkpoints((checkpoint(name="fine.pt"), checkpoint(*bad)))
    (found,) = WeightsPoisoned().in_checkpoint(table)
    assert found.message.startswith(f"a.pt: w{number - 1} is ") and found.steps == 1
    assert more in found.message


@pytest.mark.parametrize(("total", "found"), [(9, 1), (10, 0), (11, 0), (None, 0)])
def test_a_schedule_that_is_shorter_than_the_training(total, found):
    scheduler = SchedulerFacts("scheduler", total=total)
    table = Checkpoints((checkpoint(schedulers=(scheduler,)),), (Setting("max_steps", 10.0),))
    assert len(list(CheckpointOverridesRate().in_checkpoint(table))) == found


# -- loaders, ranks, graphs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("averaged", "said"),
    [(0, "no earlier one averages"), (1, "only 1 earlier pass averaged"), (2, "2 earlier passes")],
)
def test_what_was_averaged_before_the_last_backward(averaged, said):
    apart = (Apart(OTHER, LINE, 9), Apart(OTHER, LINE, averaged))
    alone = DataParallelModule("Net", 1, 1 << 20, (2, 2), LINE, apart, 2)
    modules = DataParallel((alone, replace(alone, ranks=2)))
    (found,) = ask(SteppedUnaveraged(), modules, Rows[CollectiveRow]())
    assert said in found.message and (found.steps, found.per_step) == (2, 1.0)
    assert [each.site for each in found.places] == [LINE, OTHER]


# -- formulas, layers, schedulers ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("feed", "dtype", "low", "said"),
    [
        ("sigmoid", "float32", 1e-20, "it is 0 once x is below about -89"),
        ("softmax", "float32", 1e-20, "once x minus the row's maximum is below about -103"),
        ("sigmoid", "float16", 1e-5, "once x is below about -11"),
        ("softmax", "float16", 1e-5, "is below about -17"),
        ("softmax", "float32", 0.0, "where its logarithm is -inf"),
    ],
)
def test_where_the_logarithm_of_a_probability_ends(feed, dtype, low, said):
    call = delicate(LINE, "function", "log", dtype, low=low, high=1.0, feed=feed)
    (found,) = ask(UnstableFormula(), OpRanges(3, (call,)), Source())
    assert said in found.message


def warning(name, **more):
    row = TorchWarningRow(at=0, name=name, text="said", n=2)
    return rows(replace_row(row, pass_name="loud", step=1, **more), sites=SITES)


@pytest.mark.parametrize(
    ("calls", "steps", "often"), [(9, 4, True), (8, 4, False), (3, 1, True), (3, 0, False)]
)
def test_a_scheduler_that_steps_more_than_twice_for_each_step(calls, steps, often):
    facts = {"name": "StepLR", "in_pass": 4, "apart": 0, "epoch": 9}
    schedulers = rows(SchedulerRow(at=0, calls=calls, steps=steps, **facts), sites=SITES)
    said = warning("scheduler first")
    (found,) = ask(SchedulerBeforeOptimizer(), said, loud(4), schedulers)
    assert (f"the scheduler steps {calls} times in" in found.message) is often
    assert (found.steps, found.per_step) == (1, 0.5)


@pytest.mark.parametrize(
    ("text", "line", "places"),
    [("given = (p for p in net)\n\nclip(given)", 1, [1, 3]), ("\n\nclip(given)", 3, [])],
)
def test_a_generator_that_is_used_up_is_told_where_it_is_made(text, line, places):
    source = Source({"t.py": text})
    (found,) = ask(ClippingOfAnEmptyGenerator(), warning("empty clipping"), loud(4), source)
    assert found.site.line == line and [each.site.line for each in found.places] == places


@pytest.mark.parametrize(("repeated", "number"), [(0, 1), (2, 2)])
def test_each_scheduler_is_judged_by_itself(repeated, number):
    facts = {"in_pass": 4, "apart": 6, "epoch": 5, "steps": 24}
    plateau = SchedulerRow(at=0, name="P", calls=4, repeated=repeated, **facts)
    cycle = SchedulerRow(at=1, name="C", calls=4, epoch_of=5, **facts)
    found = list(ask(ScheduleInEpochs(), rows(plateau, cycle, sites=SITES), Batches()))
    assert len(found) == number and found[-1].site == OTHER
    assert (found[-1].steps, found[-1].per_step) == (4, 1 / 6)
    assert "only once in 6 optimizer steps: its schedule takes 5 times" in found[-1].message
    few = (replace_row(cycle, **more) for more in ({"epoch_of": 4}, {"apart": 4}))
    assert not list(ask(ScheduleInEpochs(), rows(*few, sites=SITES), Batches()))
