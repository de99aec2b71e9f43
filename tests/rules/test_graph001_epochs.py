"""GRAPH001 on a holder that an epoch empties."""

import pytest
from auditor.rules.graph.kept import Backward, GraphKeptAcrossSteps

from auditor.evidence.recorded.retained_graphs import RetainedGraphs, Root
from auditor.evidence.source.files import Source
from auditor.model import Severity, Site
from tests.rules.asking import ask, holding

SITE = Site("trainer.py", 4, "step", "total = total + loss")


def told(ages, *, walked=False, **knobs):
    holdings = tuple(
        holding(
            step,
            2,
            carried=int(step > 0 and age > 0),
            oldest=age,
            nodes=9,
            held_bytes=1024 * age,
            walked=walked,
        )
        for step, age in enumerate(ages)
    )
    table = RetainedGraphs((Root("total", SITE, holdings, len(holdings)),))
    source = Source({"trainer.py": "\n\n\ntotal = total + loss\n"})
    return list(ask(GraphKeptAcrossSteps(**knobs), table, Backward(), source))


@pytest.mark.parametrize(
    ("ages", "severity", "words"),
    [
        ([*range(17), 0, 1, 2], Severity.WARNING, "16 or more earlier steps, until it is"),
        ([*range(11), 0, 1, 2], Severity.NOTE, "up to 10 earlier steps"),
        ([*range(6), *range(7), *range(7)], Severity.NOTE, "up to 6 earlier steps"),
    ],
    ids=["an epoch", "eleven steps", "every seventh step"],
)
def test_only_what_an_epoch_empties_is_more_than_a_note(ages, severity, words):
    (finding,) = told(ages)
    assert finding.severity is severity
    assert words in finding.message
    assert ("until" in finding.message) == (severity is Severity.WARNING)


def test_what_a_later_backward_walks_stays_a_note():
    (finding,) = told([*range(17), 0, 1, 2], walked=True)
    assert finding.severity is Severity.NOTE


def test_the_knob_says_how_long():
    (finding,) = told([*range(11), 0, 1, 2], stretch=11)
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("held", "severity"),
    [(lambda step: 0, Severity.WARNING), (lambda step: 64 * step, None), (lambda step: None, None)],
    ids=["no saved tensor", "each step's", "not known"],
)
def test_graphs_that_hold_no_saved_tensor_are_no_error(held, severity):
    holdings = tuple(
        holding(
            step,
            step + 1,
            carried=step,
            oldest=step,
            nodes=9 * (step + 1),
            held_bytes=held(step),
        )
        for step in range(12)
    )
    table = RetainedGraphs((Root("losses[*]", SITE, holdings, len(holdings)),))
    (finding,) = ask(GraphKeptAcrossSteps(), table, Backward(), Source({"trainer.py": "\n\n\n\n"}))
    assert finding.severity is severity
    assert finding.lost_bytes == (64 if held(1) else None)
