"""Waits of a trace as findings: usual from half of the steps on, priced where steps are marked."""

import pytest
from auditor.rules.sync.waiting import LEAST_SHARE, waits_in_trace

from auditor.evidence.trace.host_waits import TraceWaits, WaitPlace
from auditor.model import Severity, Site


def found(seen, of=4, **more):
    call = "scalar", "aten::item", "cudaMemcpyAsync", Site("train.py", 4, "step")
    waited = {"backward": False, "asynchronous": False, "held_us": 0.0}
    place = WaitPlace(*call, **waited, seen=frozenset(seen), n=6, won_us=80.0, of=of)
    table = TraceWaits(**{"marked": True, **more})
    (finding,) = waits_in_trace(table, [place], lambda each: f"{each.operator} waits")
    return finding


@pytest.mark.parametrize(("seen", "severity"), [({0, 1}, None), ({0}, Severity.NOTE)])
def test_half_of_the_steps_are_usual(seen, severity):
    assert LEAST_SHARE == 0.5
    finding = found(seen)
    assert (finding.severity, finding.steps, finding.per_step) == (severity, len(seen), 1.5)
    assert (finding.lost_us_per_step, finding.basis) == (20.0, "estimated")
    assert finding.message == f"aten::item waits in step: the host waits on {len(seen)} of 4 steps"


def test_without_marks_or_times_there_is_no_price():
    unmarked = found({0}, of=1, marked=False)
    assert (unmarked.severity, unmarked.steps, unmarked.per_step) == (Severity.NOTE, 0, 0.0)
    assert (unmarked.lost_us_per_step, unmarked.basis) == (None, "none")
    assert unmarked.message.endswith("6 waits in the trace, which marks no steps")
    untimed = found({0, 1}, timed=False)
    assert (untimed.severity, untimed.per_step) == (None, 1.5)
    assert (untimed.lost_us_per_step, untimed.basis) == (None, "none")
