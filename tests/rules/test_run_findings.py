"""What rules say of runs, on tables made by hand: the words, the averages and both sides of what
decides.
"""

from dataclasses import replace

import pytest
from auditor.rules.amp.precision import LossInHalf
from auditor.rules.cfg.cfg008_float64_creeps import Float64InTheStep
from auditor.rules.graph.kept import GradientsKeepTheirGraph
from auditor.rules.graph.left_out import (
    GraphRecordedInEvaluation,
    ParametersNeverTrained,
    TrainableTensorLeftOut,
)
from auditor.rules.graph.rows import CycleRow, EvalRow, StrayRow
from auditor.rules.kern.loops import IndexingLoop, IndexingLoops, LoopOverIndex
from auditor.rules.num.half_range import HalfNearOverflow
from auditor.rules.num.nonfinite import (
    BadTensor,
    BatchNotFinite,
    Birth,
    InputRange,
    Nonfinite,
    NonfiniteValueBorn,
    WeightsPoisoned,
)
from msgspec import structs

from auditor.evidence.recorded.amp import Amp, OpRanges
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.model import Severity, Site
from auditor.recordings.schema.data import LoadRow, ModuleLoadRow
from auditor.recordings.schema.graph import FedRow, Parameter, StillGroup
from tests.rules.asking import ask, delicate, lines, placed, rescaled, rows
from tests.rules.doubles import doubles

LINE, OTHER = Site("train.py", 3), Site("train.py", 9)


def output(op="mm", **more):
    facts = {"n": 6, "steps": 2, "low": -100.0, "high": 30_000.0, **more}
    return delicate(LINE, "output", op, "float16", **facts)


def told(rule, *tables):
    """Message, steps and occurrences per step of each finding."""
    return [(each.message, each.steps, each.per_step) for each in ask(rule, *tables)]


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "left"),
    [
        (-100.0, 30_000.0, "1.1"),
        (-100.0, 16_377.0, "2"),
        (-100.0, 16_376.0, None),  # two powers of two
        (-65_504.0, 30_000.0, "0"),
        (-60_000.0, 30_000.0, "0.13"),
        (None, 30_000.0, "1.1"),
        (-60_000.0, None, "0.13"),
        (0.0, 0.0, None),
        (-100.0, float("inf"), None),
        (-100.0, 70_000.0, None),
    ],
)
def test_headroom_of_float16(low, high, left):
    found = list(ask(HalfNearOverflow(), OpRanges(3, (output(low=low, high=high),)), Amp()))
    said = [f"{left} powers of two are left" in each.message for each in found]
    assert said == [True] * bool(left)


def test_the_least_headroom_of_a_line_is_told_and_all_its_calls_are_counted():
    calls = (output(), output("bmm", high=60_000.0, n=3, steps=1))
    ((message, steps, often),) = told(HalfNearOverflow(), OpRanges(3, calls), Amp())
    assert message.startswith("bmm gave values up to 6e+04 in float16, which ends at 65504: 0.13")
    assert (steps, often) == (1, 3.0)


def test_overflows_are_told_where_a_scaler_skipped():
    calls = (output(high=10.0, overflowed=2), output("bmm", high=10.0, overflowed=4, n=9))
    skipped = (rescaled(OTHER, 0, 2.0, 1.0), rescaled(OTHER, 1, 1.0, 1.0))
    table = OpRanges(3, calls)
    ((message, steps, often),) = told(HalfNearOverflow(), table, Amp(2, (), skipped))
    assert message.startswith("bmm overflowed in float16, which ends at 65504, in 4 of 9 calls;")
    assert message.endswith("; GradScaler skipped 1 of 2 steps")
    assert (steps, often) == (2, 2.0)
    assert told(HalfNearOverflow(), table, Amp(2, (), skipped[1:])) == []


BIRTH = Birth("exp", "forward", "inf", 4, LINE, dtype="float16")
BAD = Nonfinite(5, 8, (BadTensor("gradient", "w", "nan"),), 3, BIRTH, replayed=True)


@pytest.mark.parametrize(
    ("change", "born"),
    [
        ({}, "exp produced inf at step 4"),
        ({"value": "nan"}, "exp produced NaN at step 4"),
        ({"inputs": (InputRange("float16", 0.0, 12.0),)}, "exp produced inf at step 4 (its input"),
        ({"fill": True}, "inf was written by exp at step 4"),
        ({"fill": True, "op": "new_empty"}, "inf was left in memory by new_empty at step 4"),
        ({"phase": "input", "fill": True}, "inf that the program wrote on purpose"),
    ],
    ids=str,
)
def test_how_a_value_was_born(change, born):
    table = replace(BAD, birth=replace(BIRTH, **change))
    ((message, steps, often),) = told(NonfiniteValueBorn(), table)
    assert message.startswith(born)
    assert message.endswith(
        "; after step 5 the gradient of w was NaN, and 2 more tensors were not finite"
    )
    assert (steps, often) == (1, 0.125)


def test_the_largest_of_what_becomes_float64_is_told_first():
    (few, many), parameters = doubles(LINE, OTHER, products=1)
    births = rows(few, structs.replace(many, elements=99), sites=(LINE, OTHER))
    found = ask(Float64InTheStep(), births, parameters, Source())
    assert [each.site for each in found] == [OTHER, LINE]


def test_inputs_are_numbered_from_one():
    ranges = (InputRange("float16", 0.0, 12.0), InputRange("float16", 1.0, 2.0))
    labels = [label for label, _ in replace(BIRTH, inputs=ranges).facts]
    assert labels == ["phase", "operator", "input 1", "input 2"]


def test_what_a_bad_value_reached():
    def reached(**change):
        return told(NonfiniteValueBorn(), replace(BAD, **change))[0][0].partition("; ")[2]

    assert reached(step=4) == "then the gradient of w was NaN, and 2 more tensors were not finite"
    assert reached(count=1) == "after step 5 the gradient of w was NaN"
    assert (
        reached(count=2, tensors=())
        == "after step 5 a tensor was not finite, and 1 more tensor was not finite"
    )
    ((message, _, often),) = told(NonfiniteValueBorn(), replace(BAD, birth=None, steps=0))
    assert message.startswith("a non-finite value appeared by step 5; after step 5")
    assert often == 1.0
    ((message, *_),) = told(NonfiniteValueBorn(), replace(BAD, birth=None, replayed=False))
    assert "by step 5 (not seen again in a replay); " in message
    assert told(NonfiniteValueBorn(), Nonfinite()) == []


@pytest.mark.parametrize(
    ("op", "unclipped", "places"), [("mm", OTHER, [3, 9]), ("mm", None, []), ("exp", OTHER, [])]
)
def test_products_that_run_away_name_the_step_that_nothing_clips_for(op, unclipped, places):
    born = replace(BIRTH, op=op, inputs=(InputRange("float32", 0.0, 1e30),))
    rule, table = NonfiniteValueBorn(), replace(BAD, birth=born, unclipped=unclipped)
    (finding,) = ask(rule, table)
    assert [each.site.line for each in finding.places] == places
    assert ("nothing clips the gradients" in finding.message) == bool(places)
    assert ("clip_grad_norm_" in rule.remedy(finding).text) == (op == "mm")


PHASES = {
    "NUM002": ["forward", "backward", "optimizer"],
    "NUM013": ["parameter", "state"],
    "NUM015": ["input"],
}


@pytest.mark.parametrize("phase", [each for phases in PHASES.values() for each in phases])
def test_each_phase_has_one_rule(phase):
    table = replace(BAD, birth=replace(BIRTH, phase=phase))
    found = {
        "NUM002": told(NonfiniteValueBorn(), table),
        "NUM013": told(WeightsPoisoned(), table, Rows[LoadRow]()),
        "NUM015": told(BatchNotFinite(), table),
    }
    assert [code for code, each in found.items() if each] == [
        code for code, phases in PHASES.items() if phase in phases
    ]


def spoiled_load(bad):
    row = ModuleLoadRow(at=0, owner="Net", bad=bad, tensors=["a", "b", "c"])
    return Rows[LoadRow]((placed(row, OTHER),))


def test_weights_that_were_poisoned_before_the_step():
    table = replace(BAD, birth=replace(BIRTH, phase="parameter", value="nan"))
    ((message, steps, often),) = told(WeightsPoisoned(), table, Rows[LoadRow]())
    assert message == (
        "a parameter held NaN before step 4 began, first used at train.py:3; w is one of the "
        "tensors that it made non-finite"
    )
    assert (steps, often) == (1, 0.125)
    loads = spoiled_load(3)
    (finding,) = ask(WeightsPoisoned(), table, loads)
    assert "Net loads here is not finite in a and 2 more tensors, first used" in finding.message
    assert finding.site is OTHER
    assert "in a and 1 more tensor, first" in told(WeightsPoisoned(), table, spoiled_load(2))[0][0]
    assert "not finite in a, first" in told(WeightsPoisoned(), table, spoiled_load(1))[0][0]
    state = replace(table, birth=replace(BIRTH, phase="state", site=None), tensors=(), steps=0)
    ((message, _, often),) = told(WeightsPoisoned(), state, loads)
    assert (message, often) == ("the optimizer's state held inf before step 4 began", 1.0)


def test_data_that_was_not_finite():
    born = replace(BIRTH, phase="input", value="nan")
    given = replace(born, inputs=(InputRange("float32", 0.0, 1.0, 0.25),))
    ((message, steps, often),) = told(BatchNotFinite(), replace(BAD, birth=given))
    assert message == (
        "the data of step 4 held NaN (0.25 of it) when it was first used here; after step 5 the "
        "gradient of w was not finite"
    )
    assert (steps, often) == (1, 0.125)
    ((message, *_),) = told(BatchNotFinite(), replace(BAD, birth=born))
    assert "held NaN when" in message


def test_a_loss_in_half_precision_is_told_by_its_worst():
    call = delicate(LINE, "function", "log", "bfloat16", n=6, steps=1, loss=True, low=0.5, high=2.0)
    half = delicate(LINE, "function", "log", "float16", n=3, steps=3, loss=True, high=2.0)
    calls = (call, half)
    (finding,) = ask(LossInHalf(), OpRanges(3, calls))
    assert (finding.severity, finding.steps, finding.per_step) == (None, 3, 3.0)
    assert "ran in float16 on the way to the loss" in finding.message
    assert "its input" not in finding.message
    (mild,) = ask(LossInHalf(), OpRanges(3, (call,)))
    assert mild.severity is Severity.NOTE
    assert mild.message.endswith("(its input went from 0.5 to 2)")


# -- float64 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        ({"elements": 9}, []),
        ({"elements": 9, "how": "mixed"}, [Severity.NOTE]),
        ({"elements": 10}, [Severity.NOTE]),
        ({"elements": 9, "products": 1}, [None]),
        ({"graph": False}, []),
        ({"how": "made"}, [None]),
        ({"how": "narrowed", "elements": 2 * 8192}, [Severity.NOTE]),
        ({"how": "narrowed", "elements": 2 * 8191}, []),
        ({"how": "made", "steps": 0, "all": 0, "elements": 3}, [None]),
    ],
    ids=str,
)
def test_float64_is_reported_from_its_share_on(change, severity):
    found = ask(Float64InTheStep(), *doubles(LINE, **change), Source())
    assert [each.severity for each in found] == severity


def test_a_step_that_is_float64_as_a_whole():
    source = Source({"train.py": "torch.set_default_dtype(torch.float64)"})

    def found(trained, **more):
        tables = doubles(LINE, OTHER, trained=trained, n=6, steps=3, **more)
        return list(ask(Float64InTheStep(), *tables, source))

    (whole,) = found(0.51, products=1)
    assert (whole.site.line, whole.steps, whole.per_step) == (1, 3, 4.0)
    assert whole.severity is Severity.NOTE
    assert len(found(0.5, products=1)) == 2  # each for itself
    assert found(0.51) == []  # no product of matrices in all of it


WINDOWS = """\
class Windows(Dataset):
    def __getitem__(self, i):
        row = self.rows[i]
        return row
class Others(Dataset):
    def __getitem__(self, i):
        if i:
            return self.a
        return self.b
"""


@pytest.mark.parametrize(
    ("dataset", "place"), [("Windows", ("d.py", 4)), ("Others", None), ("Tensor", None), ("", None)]
)
def test_data_that_was_not_finite_is_named_where_its_dataset_returns_it(dataset, place):
    born = replace(BIRTH, phase="input", value="nan", dataset=dataset)
    table = replace(BAD, birth=born)
    (found,) = ask(BatchNotFinite(), table, Source({"d.py": WINDOWS}))
    assert (found.site.file, found.site.line) == (place or (born.site.file, born.site.line))
    assert (f"first used at {born.site}" in found.message) is (place is not None)


# -- graphs ----------------------------------------------------------------------------------------


def unused(line=LINE, **more):
    """A module that ran 6 times in eval mode on 4 steps, and no backward walked its graphs."""
    facts = {"module": "Net", "n": 6, "steps": 4, "walked": 0, "held": False, "saved_bytes": None}
    return rows(EvalRow(at=0, **(facts | more)), sites=(line, OTHER))


@pytest.mark.parametrize(("outer", "lines"), [(None, []), (1, [9])])
def test_a_graph_below_a_line_that_needs_none(outer, lines):
    (finding,) = ask(GraphRecordedInEvaluation(), unused(outer=outer))
    assert finding.site == LINE
    assert [each.site.line for each in finding.places if each.site != LINE] == lines


@pytest.mark.parametrize(
    ("saved", "basis", "cost"), [(None, "none", ""), (2048, "measured", "; 2 KiB were saved")]
)
def test_a_graph_in_eval(saved, basis, cost):
    rule = GraphRecordedInEvaluation()
    (finding,) = ask(rule, unused(saved_bytes=saved))
    assert finding.message.startswith("Net ran 6 times in eval mode with gradients enabled, and no")
    assert (cost in finding.message) and (finding.lost_bytes, finding.basis) == (saved, basis)
    assert (finding.steps, finding.per_step) == (4, 1.5)
    (train,) = ask(rule, unused(saved_bytes=saved, mode="train"))
    assert "Net, which no optimizer trains, ran 6 times with" in train.message
    assert told(rule, unused(n=2)) == []
    assert len(told(rule, unused(n=3))) == 1
    assert told(rule, unused(walked=1)) == told(rule, unused(held=True)) == []


def cycles(*given, steps=4):
    """Rows of (step, line, leaves, bytes held), a line by its place in (LINE, OTHER)."""
    made = (
        CycleRow(step=step, at=at, leaves=leaves, held_bytes=held)
        for step, at, leaves, held in given
    )
    table = lines(*made, sites=(LINE, OTHER), of=steps, pass_name="loud")
    return list(ask(GradientsKeepTheirGraph(), table))


def test_gradients_that_keep_their_graph():
    (finding,) = cycles((1, 0, 3, 1024), (2, 0, 5, 3072))
    assert finding.message == (
        "5 gradients of backward(create_graph=True) kept their graph into a later step on 2 of 4 "
        "steps, and 2 KiB more are held after each"
    )
    assert (finding.steps, finding.lost_bytes) == (2, 2048)
    assert (finding.grows, finding.basis) == (True, "measured")
    facts = {
        "gradients with a graph": "3 at first, 5 at the end",
        "saved for backward": "1 KiB at first, 3 KiB at the end",
    }
    assert dict(finding.facts) == facts
    (finding,) = cycles((1, 0, 3, 1024), (2, 0, 5, None))
    assert (finding.lost_bytes, finding.basis, len(finding.facts)) == (None, "none", 1)
    assert cycles((1, 0, 3, 1024), (2, 0, 5, 3072), steps=5) == []


@pytest.mark.parametrize(
    ("held", "growth"),
    [((5,), None), ((5, 5), None), ((9, 5), None), ((5, 6), 1), ((0, 9, 20), 10)],
)
def test_growth_of_a_cycle(held, growth):
    given = ((step, 0, 1, nbytes) for step, nbytes in enumerate(held))
    assert [each.lost_bytes for each in cycles(*given, steps=len(held))] == [growth]


def fed(names=(), **more):
    facts = {"at": 0, "optimizer": "SGD", "steps": 8, "parameters": 9, "n": len(names)}
    unfed = [Parameter(name=name, shape=[2]) for name in names]
    row = FedRow(**({**facts, "unfed": unfed, "still": []} | more))
    return rows(row, sites=(LINE, OTHER))


@pytest.mark.parametrize(("number", "more"), [(3, ""), (4, " and 1 more"), (1, "")])
def test_parameters_that_never_had_a_gradient(number, more):
    names = [f"p{n}" for n in range(number)]
    said, still = ", ".join(names[:3]) + more, [StillGroup(group=1, parameters=4)]
    found = list(ask(ParametersNeverTrained(), fed(names, still=still)))
    assert [each.message for each in found] == [
        f"{number} of 9 parameters of SGD had no gradient in any of 8 steps: {said}",
        "SGD stepped its group 1 (4 parameters) with a rate of 0 on all of 8 steps",
    ]
    assert [(each.steps, each.per_step) for each in found] == [(8, 1.0)] * 2
    assert (len(found[0].facts), found[1].facts) == (number, ())
    few, none = fed(names, still=still, steps=7), fed()
    assert told(ParametersNeverTrained(), few) == told(ParametersNeverTrained(), none) == []


@pytest.mark.parametrize(
    ("names", "orphaned"),
    [
        (["group 0, parameter 0", "group 0, parameter 7"], True),
        (["group 0, parameter 0", "head.weight"], False),
        (["head.weight"], False),
    ],
)
def test_parameters_that_no_module_holds(names, orphaned):
    (finding,) = ask(ParametersNeverTrained(), fed(names))
    assert finding.remedy.text.startswith("Create the optimizer after") is orphaned


def stray(name="w", **more):
    """A parameter of a module that no optimizer holds, with a gradient on 8 steps."""
    facts = {"at": 0, "registered": True, "optimized": False, "shape": [2], "grad_bytes": 512}
    facts |= {"fed": 8, "changed": False, "touched": 0, "asked": False, "beside": 0}
    return StrayRow(name=name, **(facts | more))


MADE = {"file": "train.py", "line": 9}
TENSOR = {"registered": False}
TRAINED = {"registered": False, "optimized": True, "beside": 1}


def left_out(*strays, optimizers=None, **knobs):
    tables = rows(*strays, sites=(LINE, OTHER)), fed() if optimizers is None else optimizers
    return list(ask(TrainableTensorLeftOut(**knobs), *tables))


def test_tensors_in_no_optimizer_or_no_module():
    (finding,) = left_out(stray("", **TENSOR, **MADE))
    assert finding.message.startswith(
        "a tensor of shape [2] never changes: it gets gradients (on 8 steps)"
    )
    assert (finding.site, finding.severity, finding.facts[1][0]) == (OTHER, None, "a tensor")
    (finding,) = left_out(stray("scale", **TRAINED))
    assert finding.message.startswith("scale is trained but in no module")
    assert (finding.site, finding.severity) == (LINE, Severity.NOTE)
    assert left_out(stray(), optimizers=Rows[FedRow]()) == []


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, 1),
        ({"fed": 7}, 0),
        ({"optimized": True}, 0),
        ({"changed": True}, 0),
        ({"changed": None}, 0),
        (TENSOR, 1),
        (TENSOR | {"touched": 3}, 0),
        (TENSOR | {"asked": True}, 0),
        (TENSOR | {"fed": 7}, 0),
        (TENSOR | {"optimized": True}, 0),
        (TENSOR | {"changed": None}, 0),
        (TRAINED, 1),
        (TRAINED | {"registered": True}, 0),
        (TRAINED | {"fed": 7}, 0),
        (TRAINED | {"beside": 0}, 0),
        (TRAINED | {"changed": True}, 1),
    ],
    ids=str,
)
def test_what_is_left_out(given, found):
    assert len(left_out(stray(**given))) == found


# -- loops -----------------------------------------------------------------------------------------


HEAD = Site("train.py", 2, "step", "for k in range(8):")
LOOP = IndexingLoop(LINE, HEAD, 10.0, 0.25, 4, 3, op="select", operators=200.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, True),
        ({"share": 0.24}, False),
        ({"operators": 201.0}, False),
        ({"steps": 2}, False),
        ({"kind": "parameters"}, True),
    ],
    ids=str,
)
def test_a_loop_over_pieces(change, said):
    found = list(ask(LoopOverIndex(), IndexingLoops(3, (replace(LOOP, **change),)), Machine()))
    assert bool(found) is said
    for finding in found:
        assert (finding.steps, finding.per_step) == (3, 10.0)
        assert [place.site.line for place in finding.places] == [2, 3]


USED = {"n": 3, "steps": 3, "walked": 3, "fed": False, "parameters": ["Net.weight"]}


@pytest.mark.parametrize(
    ("change", "told_of"),
    [
        ({}, True),
        ({"n": 2}, False),
        ({"fed": True}, False),
        ({"walked": 0, "held": True}, False),
        ({"mode": "train"}, False),
        ({"parameters": ["Net.other"]}, False),
    ],
    ids=str,
)
def test_a_teacher_whose_gradients_nobody_uses(change, told_of):
    places = unused(**(USED | change))
    leaves = rows(stray("Net.weight", at=1, fed=9, shape=[8]), sites=(LINE, OTHER))
    found = list(ask(GraphRecordedInEvaluation(), places, leaves))
    assert [each.site for each in found] == [LINE] * told_of
    other = list(ask(TrainableTensorLeftOut(), leaves, fed(), places))
    assert len(other) == (not told_of)


def test_an_average_in_train_mode_is_a_teacher_once_it_changes():
    for changed in (True, False):
        leaf = rows(stray("Net.weight", changed=changed))
        place = unused(**USED | {"mode": "train"})
        assert len(told(GraphRecordedInEvaluation(), place, leaf)) == changed


def test_a_line_that_detaches_what_a_trained_model_gave_is_a_note():
    for text, severity in (("x = net(z)", None), ("x = net(z).detach()", Severity.NOTE)):
        place = unused(line=replace(LINE, text=text), mode="trained")
        (finding,) = ask(GraphRecordedInEvaluation(), place)
        assert finding.severity is severity
