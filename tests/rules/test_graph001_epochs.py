"""GRAPH001 on a holder that an epoch empties."""

import pytest
from auditor.rules.graph.kept import Backward, GraphKeptAcrossSteps

from auditor.evidence.recorded.retained_graphs import RetainedGraphs, Root
from auditor.evidence.source.files import Source
from auditor.model import Severity, Site
from tests.rules.asking import ask, holding

SITE = Site("trainer.py", 4, "step", "total = total + loss")


def told(*holdings, name="total", **knobs):
    table = RetainedGraphs((Root(name, SITE, holdings, len(holdings)),))
    source = Source({"trainer.py": "\n\n\ntotal = total + loss\n"})
    return list(ask(GraphKeptAcrossSteps(**knobs), table, Backward(), source))


def aged(ages, **more):
    for step, age in enumerate(ages):
        facts = {"carried": int(step > 0 and age > 0), "oldest": age, "held_bytes": 1024 * age}
        yield holding(step, 2, nodes=9, **facts, **more)


def test_what_a_later_backward_walks_stays_a_note_and_the_knob_says_how_long():
    (finding,) = told(*aged([*range(17), 0, 1, 2], walked=True))
    assert finding.severity is Severity.NOTE
    (finding,) = told(*aged([*range(11), 0, 1, 2]), stretch=11)
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("held", "severity"), [(0, Severity.WARNING), (64, None), (None, None)], ids=str
)
def test_graphs_that_hold_no_saved_tensor_are_no_error(held, severity):
    (finding,) = told(
        *(
            holding(n, n + 1, carried=n, oldest=n, nodes=9 * (n + 1), held_bytes=held and held * n)
            for n in range(12)
        ),
        name="losses[*]",
    )
    assert finding.severity is severity
    assert finding.lost_bytes == (held or None)


@pytest.mark.parametrize(
    ("ages", "severity", "words"),
    [
        ([*range(17), 0, 1, 2], Severity.WARNING, "16 or more earlier steps, until it is"),
        ([*range(12), 0, 1, 2], Severity.WARNING, "11 or more earlier steps, until it is"),
        ([*range(11), 0, 1, 2], Severity.NOTE, "up to 10 earlier steps"),
        ([*range(6), *range(7), *range(7)], Severity.NOTE, "up to 6 earlier steps"),
    ],
    ids=["an epoch", "twelve steps", "eleven steps", "every seventh step"],
)
def test_only_what_an_epoch_empties_is_more_than_a_note(ages, severity, words):
    (finding,) = told(*aged(ages))
    assert finding.severity is severity
    assert words in finding.message
    assert ("until" in finding.message) == (severity is Severity.WARNING)
