"""Windows of micro-batches, networks that are one, and what counts of elements add up to: values."""

import pytest
from auditor.rules.opt.gradients import MicroBatchesCleared, WindowAcrossEpochs
from auditor.rules.opt.rows import MicroBatchRow
from auditor.rules.train.census import TargetIsTheTrainedOne

from auditor.evidence.scans import ElementCounts
from auditor.evidence.source.files import Source
from auditor.model import Severity, Site
from auditor.recordings.schema.graph import CensusRow, ThrownRow, ZeroGradRow
from tests.rules.asking import ask, lines, rows

BACKWARD, CLEARS, STEPS = (Site("t.py", n, "step") for n in (3, 4, 5))


@pytest.mark.parametrize(
    ("calls", "line"), [({1: 4}, 4), ({1: 1}, 3), ({1: 4, 2: 1}, 4), ({1: 4, 2: 4}, 3)]
)
def test_opt017_names_the_line_that_clears_several_times_a_step(calls, line):
    cleared = [ZeroGradRow(at=at, step=step, n=n) for at, n in calls.items() for step in (0, 1)]
    sites = (BACKWARD, CLEARS, STEPS)
    row = ThrownRow(what="window", at=0, n=4)
    (found,) = ask(
        MicroBatchesCleared(), rows(row, sites=sites), lines(*cleared, of=2, sites=sites)
    )
    assert found.site is not None and found.site.line == line
    assert "between the 4 backward" in found.message and "other 3 are lost" in found.message


def window(step, n=4, **more):
    return MicroBatchRow(at=0, step=step, optimizer="SGD", n=n, means=n, weight=0.25, **more)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (window(4, 6, crosses=True, stepped=2), "adds up 6 instead of 4"),
        (window(4, 2), "its step weighs 50% of the others"),
        (window(4, 8, crosses=True, stepped=2), None),
        (window(4, 4, crosses=True, stepped=2), None),
    ],
)
def test_opt015_compares_the_last_window_with_the_usual_one(last, said):
    given = [*map(window, range(4)), last, window(5, begins=True)]
    table = rows(*given, sites=(BACKWARD, CLEARS, STEPS))
    found = list(ask(WindowAcrossEpochs(), table, Source({"t.py": ""})))
    assert bool(found) == bool(said)
    for each in found:
        assert said in each.message and each.steps == 1


@pytest.mark.parametrize(("calls", "severity"), [(1, None), (2, Severity.NOTE)])
def test_a_target_that_is_called_elsewhere_too_is_a_note(calls, severity):
    text = "y = target(x)\n" * calls + "z = online(x)\nw = other(x)\n"
    site = Site("t.py", 1, "step", "y = target(x)")
    row = CensusRow(at=0, kind="alias", name="Net", other="target online")
    (found,) = ask(TargetIsTheTrainedOne(), rows(row, sites=(site,)), Source({"t.py": text}))
    assert found.severity == severity


def test_counts_of_elements_add_up():
    few = ElementCounts(5, 1, 2, 1, low=1.0, high=1.0)
    assert (few + few, few.nonfinite) == (ElementCounts(10, 2, 4, 2, 1.0, 1.0), 4)
    few, more = ElementCounts(2, nan=1, low=1.0, high=3.0), ElementCounts(3, low=-1.0, high=2.0)
    both = few + more + ElementCounts(4)
    assert (both.count, both.nan, both.low, both.high) == (9, 1, -1.0, 3.0)
    assert (ElementCounts(1) + ElementCounts(1)).low is None
