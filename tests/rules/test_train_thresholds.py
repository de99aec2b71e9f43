"""TRAIN001 to TRAIN005 at both sides of their thresholds."""

import pytest
from auditor.rules.train.losses import (
    ActivationAppliedTwice,
    MicroBatchesWeighedAlike,
    PaddingTrained,
    SilentBroadcast,
    TargetsNotShifted,
)
from auditor.rules.train.rows import RepairRow, TokenWeightsRow

from auditor.evidence.source.files import Source
from auditor.model import Severity, Site
from tests.rules.asking import ask, rows

SITE = Site("t.py", 3, "step", "loss_of(out, y).backward()")
OTHER = Site("t.py", 7, "step", "other_of(out, y).backward()")
RULES = {"broadcast": SilentBroadcast, "activation": ActivationAppliedTwice}
RULES |= {"padding": PaddingTrained, "tokens": MicroBatchesWeighedAlike, "shift": TargetsNotShifted}
FACTS = {
    "broadcast": {"function": "mse_loss", "given": [16, 1], "other": [16], "second": True},
    "activation": {"function": "cross_entropy", "activation": "softmax"},
    "padding": {"function": "cross_entropy", "padded": 3, "targets": 12, "by": "mask"},
    "shift": {"function": "cross_entropy", "distance": 2, "targets": 12},
}


def row(kind, angle=0.0, ratio=1.0, *, over="parameters", step=0, at=0):
    numbers = {"angle": angle, "ratio": ratio, "over": over, "step": step, "at": at}
    if kind == "tokens":
        return TokenWeightsRow(**numbers, tokens=[12, 3], function="cross_entropy")
    return RepairRow(**numbers, defect=kind, loss=1.0, repaired=2.0, **FACTS[kind])


def found(kind, *given, **knobs):
    """What the rule of a kind says of rows; of no program, so that there is no patch."""
    source = () if kind in ("padding", "tokens", "shift") else (Source({}),)
    tables = rows(*given, sites=(SITE, OTHER)), *source
    return list(ask(RULES[kind](**knobs), *tables))


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize(
    ("angle", "ratio", "number"),
    [(0.99, 1.019, 0), (0.99, 0.981, 0), (1.0, 1.0, 1), (0.0, 1.02, 1), (0.0, 0.98, 1)],
)
def test_gradients_that_are_the_same_are_no_finding(kind, angle, ratio, number):
    assert len(found(kind, row(kind, angle, ratio))) == number


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize(
    ("angle", "ratio", "severity"),
    [
        (30.0, 1.0, None),
        (30.1, 1.0, Severity.ERROR),
        (10.0, 2.0, None),
        (10.0, 2.01, Severity.ERROR),
        (10.0, 0.5, None),
        (10.0, 0.49, Severity.ERROR),
    ],
)
def test_gradients_that_are_far_apart_are_an_error(kind, angle, ratio, severity):
    (finding,) = found(kind, row(kind, angle, ratio))
    assert finding.severity is severity
    assert RULES[kind].severity is Severity.WARNING


@pytest.mark.parametrize("kind", RULES)
def test_most_of_the_rows_of_a_line_decide(kind):
    far, near = row(kind, 40.0), row(kind, 40.0, step=1)
    same = [row(kind, step=step) for step in (1, 2)]
    assert found(kind, far, *same) == found(kind, far, same[0]) == []
    assert len(found(kind, far, near, same[1])) == 1
    (finding,) = found(kind, far, row(kind, 10.0, step=1))
    assert (finding.severity, finding.steps) == (None, 2)


@pytest.mark.parametrize(
    ("angle", "ratio", "knobs", "severity"),
    [
        (4.9, 1.09, {}, Severity.NOTE),
        (5.0, 1.0, {}, None),
        (4.9, 1.1, {}, None),
        (4.9, 0.89, {}, None),
        (4.9, 1.0, {"note_below": 4.9}, None),
    ],
)
def test_micro_batches_that_are_nearly_even_are_a_note(angle, ratio, knobs, severity):
    (finding,) = found("tokens", row("tokens", angle, ratio), **knobs)
    assert finding.severity is severity


@pytest.mark.parametrize(
    ("kind", "more", "said", "advised"),
    [
        ("shift", {}, "shifted twice", "Shift once"),
        ("shift", {"distance": 0}, "not shifted", "Compare the outputs at [:, :-1]"),
        ("activation", {}, "applies softmax to the result of softmax", "the logits"),
        ("activation", {"function": "nll_loss"}, "expects log-probabilities", "log_softmax"),
    ],
)
def test_what_is_wrong_and_what_to_do(kind, more, said, advised):
    one = row(kind, 40.0)
    for name, value in more.items():
        setattr(one, name, value)
    (finding,) = found(kind, one)
    assert said in finding.message and advised in finding.remedy.text


def test_angles_of_parameters_count_before_those_of_outputs():
    (finding,) = found("shift", *(row("shift", 80.0, over="outputs"), row("shift", 31.0)))
    assert "31 degrees" in finding.message
    (finding,) = found("shift", row("shift", 80.0, over="outputs"))
    assert "at the model's outputs is 80 degrees" in finding.message
