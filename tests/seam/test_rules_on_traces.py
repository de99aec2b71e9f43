"""Prices of a trace: idle time has one owner, so the rules' claims together are there."""

import re

import pytest

from auditor.evidence.table import Evidence
from auditor.evidence.trace.facts import timeline_of
from auditor.judging import catalogue, engine
from auditor.recordings.standalone import TraceRecording
from tests.recorded_traces import TRACES
from tests.timeline.kineto import call, kernel, loop, memcpy, note, op, product, text, write
from tests.timeline.test_pinned import copies

OF_IDLE = re.compile(r"DATA007|SYNC00[1-8]|SYNC012|OPT001|KERN00[123]")
"""Rules whose prices are idle time of the device; those of SYNC003, SYNC006 and SYNC007 hold what
pinned memory would save, too.
"""

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def driver_and_host(number, start):
    """A gap of 900 ms in a step of 1.04 s: cudaFree and cudaMalloc for 880 of them."""
    return [
        *product(start, 100 * number, 100_000),
        call("cudaFree", start + 100_100, 480_000, 100 * number + 1),
        call("cudaMalloc", start + 590_000, 400_000, 100 * number + 2),
        *product(start + 1_000_000, 100 * number + 3, 30_000),
    ]


def all_at_once(number, start):
    """A gap in which the loop waits for a batch, a wait ends, memory is taken, and Python runs."""
    return [
        *product(start, 100 * number, 1000),
        op("aten::item", start + 200, 900),
        call("cudaMemcpyAsync", start + 300, 10, 100 * number + 1),
        memcpy("DtoH (Device -> Pageable)", start + 1016, 2, 100 * number + 1),
        call("cudaStreamSynchronize", start + 310, 780, 100 * number + 2),
        note(LOADER, start + 1095, 3000),
        call("cudaMalloc", start + 3900, 1000, 100 * number + 3),
        call("cudaFree", start + 5000, 700, 100 * number + 4),
        *product(start + 7000, 100 * number + 5, 500),
        *[
            event
            for place in range(20)
            for event in product(start + 8000 + 60 * place, 100 * number + 10 + place, 5)
        ],
    ]


def one_by_one(number, start):
    """An optimizer of 60 short kernels, launched slower than they run, among 20 others."""
    events = [note("Optimizer.step#SGD.step", start + 2000, 3000)]
    for place in range(80):
        at = start + 40 + 50 * place
        events += [
            call("cudaLaunchKernel", at, 5, 1000 * number + place),
            kernel("k", at + 6, 3, 1000 * number + place),
        ]
    return events


def starved_in_bursts(number, start):
    """Two steps of five wait for their batch nearly all the time, the others not at all."""
    starved = number % 5 in (1, 2)
    begin, us = (9100, 400) if starved else (20, 4800)
    first = product(start + begin, 10 * number, us)
    return [
        note(LOADER, start + 5, 9000 if starved else 3),
        *first,
        *product(start + begin + us, 10 * number + 1, us),
    ]


MADE = {
    "driver and host": loop(4, 1_040_000.0, driver_and_host),
    "all at once": loop(5, 10_000.0, all_at_once),
    "one by one": loop(4, 5000.0, one_by_one),
    "pageable": copies("HtoD (Pageable -> Device)", "DtoH (Device -> Pageable)"),
    "bursts": loop(15, 10_000.0, starved_in_bursts),
}


@pytest.fixture(params=[*MADE, *TRACES])
def recording(request, tmp_path):
    if request.param in MADE:
        return Evidence(TraceRecording(write(tmp_path, text(MADE[request.param]))))
    return Evidence(TraceRecording(TRACES[request.param].path))


def test_no_time_is_claimed_twice_and_nothing_is_named_that_is_not_there(recording):
    judged = engine.judge(recording, catalogue.rules())
    line = timeline_of(recording)
    steps, codes = line.steps, {finding.code for finding in judged.findings}
    for finding in judged.findings:
        named = {rule.code for rule in catalogue.rules() if rule.code in finding.message}
        assert named <= codes and "{see" not in finding.message
    idle = line.idle.total / 1e3 / steps.count if line.idle is not None else 0.0
    slow = line.pageable.slow_ns[line.copies.step >= 0].sum() / 1e3 / max(1, steps.count)
    prices = {finding.key: finding.lost_us_per_step or 0.0 for finding in judged.findings}
    if line.devices:  # without one a wait for a batch is the host's own time
        assert sum(us for key, us in prices.items() if OF_IDLE.match(key)) <= idle + slow + 1
    if steps.marked:
        assert sum(prices.values()) <= float((steps.end - steps.start).mean()) / 1e3 + 1
    assert not [verdict for verdict in judged.verdicts if verdict.status == "failed"]


def found(tmp_path, name):
    judged = engine.judge(
        Evidence(TraceRecording(write(tmp_path, text(MADE[name])))), catalogue.rules()
    )
    return {finding.code: finding for finding in judged.findings}


def test_memory_from_the_driver_and_the_hosts_own_time_share_the_gap(tmp_path):
    """As seen: SYNC012 and KERN002 claimed 1.76 s of a step of 1.04 s."""
    both = found(tmp_path, "driver and host")
    assert both["SYNC012"].lost_us_per_step == pytest.approx(880_000, rel=0.001)
    assert "KERN002" not in both  # the 20 ms that are left are no tenth of the step
    assert (
        "because the host was in driver calls that allocate or free memory (SYNC012)"
        in both["KERN001"].message
    )
    assert both["KERN001"].severity.value == "note"


def test_idle_time_that_no_finding_carries_is_the_warning_itself(tmp_path):
    """DATA007 is pointed to where it is there; where it was silent the time is nobody's."""
    both = found(tmp_path, "bursts")
    assert (
        both["KERN001"].severity.value == "note"
        and "the loop has no batch (DATA007)" in both["KERN001"].message
    )
    recording = Evidence(TraceRecording(write(tmp_path, text(MADE["bursts"]))))
    knobs = {"DATA007": {"noticed": 0.9}}
    (alone,) = (
        one
        for one in engine.judge(recording, catalogue.rules(), knobs=knobs).findings
        if one.code == "KERN001"
    )
    assert (
        alone.message.endswith("because the loop has no batch")
        and alone.severity.value == "warning"
    )
    assert alone.lost_us_per_step > 3000
