"""Loops that were timed: the median of the steps that time them, never more than a step."""

import pytest
from auditor.rules.kern.loops import IndexingLoops, LoopTimes, ModuleLoops

from tests.evidence.recorded.rows import steps

TEXT = """def step():
    for row in rows:
        out[row] = net(x[row])
    one[0]
"""
PASSES = {"passes": [{"name": "numbers", "steps": 1}]}
PIECES = {"pass": "numbers", "step": 0, "op": "addmm", "operators": 30, "all": 100, "elements": 4}
MODULES = {"module": "Net", "recurrent": False, "elements": 4, "us": 20.0, "step_us": 90.0}


def times(at, *us):
    return [{"pass": "loops", "step": step, "at": at, "us": each} for step, each in enumerate(us)]


@pytest.mark.parametrize(
    ("us", "expected"),
    [((300.0, 200.0, 900.0), 300.0), ((2000.0,), 1000.0), ((0.0,), None), ((), None)],
)
def test_the_middle_step_counts_and_no_loop_is_longer_than_a_step(seen, us, expected):
    made = seen(sites=[3, 4], steps=steps(3, "quiet"), loop_times=times(0, *us)).get(LoopTimes)
    assert made.us_of(0) == expected
    assert made.us_of(None, 1, 0) == expected
    assert made.us_of(None) is None


def test_without_a_timing_pass_nothing_is_timed(seen):
    assert seen(sites=[3], steps=steps(3), loop_times=times(0, 5.0)).get(LoopTimes).us == {0: 0.0}
    assert seen(sites=[3]).get(LoopTimes).us_of(0) is None


def test_the_time_of_a_loop_over_a_module_is_counted_once(seen):
    parts = {
        "piecewise": [{**PIECES, "at": 0, "n": 10}],
        "turns": [{"pass": "numbers", "step": 0, "lines": [0], "n": 10, **MODULES}],
        "steps": steps(3, "quiet"),
    }
    timed = seen(TEXT, sites=[3], manifest=PASSES, **parts, loop_times=times(0, 300.0))
    assert [each.us for each in timed.get(ModuleLoops).loops] == [300.0]
    assert [each.us for each in timed.get(IndexingLoops).loops] == [None]
