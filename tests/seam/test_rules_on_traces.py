"""Idle time of a device has one owner: on real traces the rules never claim more of it than there was."""

from __future__ import annotations

import pytest

from auditor import catalogue, engine
from auditor.bare_trace import TraceRecording
from auditor.evidence.trace import timeline_of
from tests.recorded_traces import FOLDER, TRACES

RULES = tuple(rule for rule in catalogue.rules() if rule.code in ("KERN001", "KERN002", "KERN003"))

pytestmark = pytest.mark.skipif(not TRACES, reason="no recorded traces beside this checkout")


@pytest.mark.parametrize("key", TRACES)
def test_idle_time_is_claimed_once(key):
    recording = TraceRecording(FOLDER / "data" / key)
    claimed = sum(finding.lost_us_per_step or 0.0 for finding in engine.judge(recording, RULES).findings)
    line = timeline_of(recording)
    idle = line.idle.total / 1e3 / line.steps.count if line.idle is not None else 0.0
    assert claimed <= idle + 1
