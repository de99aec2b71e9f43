"""Where the device's time went: the same in the terminal, on the page and in Markdown."""

from dataclasses import replace

import pytest
from auditor.reports import device, renderer
from auditor.reports.as_json import load
from auditor.reports.terminal import Terminal

from auditor.evidence.table import Evidence
from auditor.evidence.trace.idle import device_time
from auditor.model.sections import (
    COMPUTING,
    COPYING,
    EXPOSED,
    IDLE,
    CopyUse,
    DeviceTime,
    KernelUse,
    Part,
    QueueUse,
)
from auditor.recordings.standalone import TraceRecording
from tests.recorded_traces import TRACES
from tests.reports import golden_report as golden
from tests.timeline.kineto import (
    call,
    kernel,
    loop,
    memcpy,
    op,
    product,
    text,
    write,
)

KERNEL = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::Lamb<4>, "
    "float>(Meta<2>, float (*)(int))"
)


def told(busy=0.84, **shares):
    """A table of a step of 10 ms."""
    parts = {COMPUTING: 0.6, EXPOSED: 0.2, COPYING: 0.04, IDLE: 0.16} | shares
    return DeviceTime(
        device="NVIDIA A100",
        steps=6,
        step_us=10_000.0,
        busy=busy,
        parts=tuple(Part(name, 10_000 * share, share) for name, share in parts.items()),
        communication_us=2700.0,
        copies=(
            CopyUse("HtoD (Pageable -> Device)", 2.0, 400.0, 4e6),
            CopyUse("DtoD (Device -> Device)", 1.0, 5.0, None),
        ),
        queue=QueueUse(15, 277, 0.31),
        kernels=(KernelUse(KERNEL, 7.0, 2180.0, 0.218),),
        loader_us=700.0,
        held_us=1200.0,
        peak_bytes=2 << 30,
    )


def report(found):
    return replace(golden.silent_report(), device_time=found)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            told(busy=0.9, **{EXPOSED: 0.09, IDLE: 0.1}),
            "little can be saved on the host (launches, waits, loading), at most 10%",
        ),
        (told(busy=0.8999), ""),
        (
            told(busy=0.9964, **{EXPOSED: 0.0, IDLE: 0.0036}),
            "The device worked for 99.6% of the steps' time: little can be saved",
        ),
        (
            told(busy=0.95, **{EXPOSED: 0.1, IDLE: 0.05}),
            "communication that nothing hides is 10%. Look there first; launches",
        ),
        (
            told(busy=0.95, **{EXPOSED: 0.0, COPYING: 0.5, IDLE: 0.05}),
            "copies that nothing hides are 50%. Look there first",
        ),
        (
            replace(told(busy=1.0, **{EXPOSED: 0.0}), steps=0),
            "for 100% of the time from its first work to its last",
        ),
        (told(busy=float("nan")), ""),
        (None, ""),
    ],
)
def test_a_busy_device_is_said_before_all_else(found, said):
    made = report(found)
    assert (said in device.opening(made)) if said else not device.opening(made)
    if said:
        shown = " ".join(Terminal().render(made).split())
        assert shown.index(said) < shown.index("No findings")
        assert said.replace("'", "&#39;") in renderer("html").render(made)
        assert device.opening(made)[:40] in renderer("markdown").render(made)


def test_a_table_comes_back_from_json_and_a_strangers_cannot_steer():
    made = report(told())
    assert load(renderer("json").render(made)).device_time == told()
    steered = replace(
        told(), device="\x1b[31m<b>", step_us=0.0, parts=(Part("\x1b]0;<i>", 1.0, float("inf")),)
    )
    steered = replace(steered, kernels=(KernelUse("<script>\x1b", 1.0, 1.0, -1.0),))
    shown, page = Terminal().render(report(steered)), renderer("html").render(report(steered))
    assert "\x1b" not in shown + page and "<i>" not in page and "<script>\\x1b" not in page


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void foo<(Kind)3, bar>(int)", "foo<(Kind)3, bar>"),
        ("ncclKernel_AllReduce(ncclWorkElem)", "ncclKernel_AllReduce"),
        ("(odd)", "(odd)"),
        ("a" * 70, f"{'a' * 37}..."),
    ],
)
def test_names_of_kernels_are_cut_where_nothing_is_lost(name, short):
    assert device.kernel_name(name, 40) == short


def test_parts_add_up_and_hidden_time_counts_once(tmp_path):
    """1000 us: 300 computing, 100 of copies, 60 of them hidden, 20 that follow, then idle."""

    def body(number, start):
        return [
            *product(start + 85, 10 * number, 300),
            op("aten::to", start + 200, 100),
            call("cudaMemcpyAsync", start + 210, 5, 10 * number + 1),
            memcpy("HtoD (Pinned -> Device)", start + 340, 100, 10 * number + 1, 1 << 20, stream=9),
            kernel("tiny", start + 440, 20, 0),
        ]

    found = device_time(Evidence(TraceRecording(write(tmp_path, text(loop(4, 1000.0, body))))))
    assert {part.name: part.us for part in found.parts} == {
        COMPUTING: 320.0,
        EXPOSED: 0.0,
        COPYING: 40.0,
        IDLE: 640.0,
    }
    assert (found.steps, found.step_us, found.busy) == (4, 1000.0, 0.36)
    assert [(one.kind, one.per_step, one.us, one.bytes) for one in found.copies] == [
        ("HtoD (Pinned -> Device)", 1.0, 100.0, 1 << 20)
    ]
    assert [(one.name, one.calls, one.us, one.share) for one in found.kernels] == [
        ("ampere_sgemm_128x64_nn", 1.0, 300.0, 0.3),
        ("tiny", 1.0, 20.0, 0.02),
    ]
    assert (found.queue.most, found.queue.empty) == (0, 1.0)
    assert (found.loader_us, found.held_us, found.peak_bytes, device.host(found)) == (
        None,
        0.0,
        None,
        "",
    )


@pytest.mark.parametrize("key", TRACES)
def test_recorded_traces_agree_with_the_truth(key):
    found, truth = (
        device_time(Evidence(TraceRecording(TRACES[key].path))),
        TRACES[key].truth["trace"],
    )
    if found is None:
        return
    assert sum(part.share for part in found.parts) == pytest.approx(1, abs=1e-9)
    assert min(part.us for part in found.parts) >= 0
    gpu = max(truth["gpu"].values(), key=lambda one: one["busy_ms"])
    if found.steps and truth["steps"]["n"] == found.steps and "step_util_pct" in gpu:
        assert 100 * found.busy == pytest.approx(gpu["step_util_pct"], abs=0.02)
    elif not found.steps:
        assert 100 * found.share_of(IDLE) == pytest.approx(gpu["idle_pct"], abs=0.02)
