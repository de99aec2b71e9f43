"""Our numbers of recorded traces against those of an independent reader."""

import statistics

import pytest

from auditor.timeline import Timeline, fleet, trace_files
from tests.recorded_traces import RANK_SETS, TRACES
from tests.timeline.truths import facts

SHARE, ROUNDING = 0.01, 0.0011
"""Sums agree within one per cent, or the last digit that the truth gives."""

NOT_COMPARED = {
    *("top_kernels", "top_ops", "pct_of_kernel_time", "launches_per_call"),
    *("ms_total", "not_hidden_by_gpu_pct", "per_step_ms", "zero_grad_n", "zero_grad_ms"),
    *("n_memset", "idle_pct", "allocs", "frees", "net_bytes"),
    *("first_reserved", "allocated_at_step_end"),
}
"""Derived in the truth from what is compared (and cut to the first few), or asked for by no rule."""

EXPLAINED = {
    # The truth adds ts and dur as float64: with epoch microseconds its steps are 0.25 us, and
    # thousands of calls of less than 1 us each add up to 2 %. Ours adds the durations as they are
    # written.
    (
        "hta_ns_resolution_v100/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
        "runtime.cudaEventQuery.ms",
    ),
    (
        "hta_ns_resolution_v100/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
        "runtime.cudaStreamGetPriority.ms",
    ),
}


def in_our_words(trace):
    """truth.json's list of causes by key, as ``facts`` gives them."""
    times = ("n", "ms", "in_steps", "ms_in_steps")
    sync = {
        f"{one['cause']}|{one['api']}": {key: one[key] for key in (*times, "per_step")}
        for one in trace["sync"]
    }
    job = trace["distributed"] or {}
    return {
        **trace,
        "sync": sync,
        "distributed": {key: job[key] for key in ("rank", "world_size") if key in job},
    }


def differences(truth, ours, where=()):
    """(path, truth, ours) where the two differ; what the truth does not hold is left out."""
    if isinstance(truth, dict):
        for key, value in truth.items():
            if (
                key in NOT_COMPARED
                or (where[:1] == ("mem",) and key == "n")
                or (where[:1] == ("gpu",) and key == "names")
            ):
                continue
            mine = (ours or {}).get(key)
            if mine is not None or value not in (None, {}, [], 0):
                yield from differences(value, mine, (*where, key))
    elif isinstance(truth, list) and isinstance(ours, list) and len(truth) == len(ours):
        for place, (value, mine) in enumerate(zip(truth, ours, strict=True)):
            yield from differences(value, mine, (*where, place))
    elif isinstance(truth, float) and isinstance(ours, (int, float)):
        digits = 10 * ROUNDING if str(where[-1]).endswith("pct") else ROUNDING
        if abs(truth - ours) > digits + SHARE * abs(truth):
            yield (*where,), truth, ours
    elif truth != ours:
        yield (*where,), truth, ours


@pytest.mark.parametrize("key", TRACES)
def test_numbers_agree_with_the_truth(key):
    truth = in_our_words(TRACES[key].truth["trace"])
    ours = facts(Timeline.of(TRACES[key].path))
    ours["sync"] = {"|".join(name): value for name, value in ours["sync"].items()}
    for table in ("sync", "alloc_calls", "memcpy", "gpu", "runtime"):
        assert set(ours[table]) == set(truth[table]), table
    compared = {name: truth[name] for name in ours if truth.get(name) is not None}
    found = [
        one
        for one in differences(compared, ours)
        if (key, ".".join(map(str, one[0]))) not in EXPLAINED
    ]
    assert found == []


@pytest.mark.parametrize("key", TRACES)
def test_open_traces_are_read_without_a_warning(key):
    assert Timeline.of(TRACES[key].path).trace.warnings == ()


@pytest.mark.parametrize("name", sorted(RANK_SETS))
def test_rank_sets_agree_with_the_truth(name):
    truth = RANK_SETS[name].truth
    job = fleet(trace_files(RANK_SETS[name].path))
    assert job.world_size == truth["world_size"]
    assert [one.row.rank for one in job.ranks] == truth["ranks_present"]
    assert job.least_waiting.row.rank == int(truth["least_comm_rank"])
    for one in job.ranks:
        row, wanted = one.row, truth["ranks"][str(one.row.rank)]
        each = max(1, row.steps) / 1e3
        assert one.communication_ns / 1e6 == pytest.approx(wanted["comm_ms"], abs=0.001)
        assert row.exposed_us * each == pytest.approx(wanted["exposed_comm_ms"], abs=0.001)
        computing = (row.busy_us - row.communication_us) * each
        assert computing == pytest.approx(wanted["compute_busy_ms"], abs=0.001)
        usual = statistics.median(wanted["step_ms"]) if wanted["step_ms"] else 0.0
        assert row.step_us / 1e3 == pytest.approx(usual, abs=0.001)
