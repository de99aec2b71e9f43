"""torch.profiler on the null device: its own trace of a small training, event by event."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from profiled import HIDDEN, ROWS, STEPS
from profiler_runs import MARK, Run, Trace, sizes

LAUNCHES = {
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaLaunchCooperativeKernel",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("plain"), "plain")


@pytest.fixture(scope="module", params=["first", "second"])
def trace(run, request) -> Trace:
    return run.trace(request.param)


def test_each_piece_of_work_has_the_call_that_asked_for_it(trace):
    assert len(trace.work) > 100
    for event in trace.work:
        call = trace.calls[event["args"]["correlation"]]
        assert call["ts"] <= event["ts"], "work begins after its call begins"
        if event["cat"] == "kernel":
            assert call["name"] in LAUNCHES
        elif event["cat"] == "gpu_memcpy":
            assert call["name"].startswith("cudaMemcpy")


def test_each_launch_has_one_kernel_and_the_device_counted_as_many(trace, run):
    launched = Counter(event["args"]["correlation"] for event in trace.of("kernel"))
    assert set(launched.values()) == {1}
    assert set(launched) == {
        number for number, call in trace.calls.items() if call["name"] in LAUNCHES
    }
    counted = run.facts("plain")[trace.path.stem]
    assert len(launched) == counted["launches"] + counted["library launches"]
    assert len(trace.of("gpu_memcpy")) == counted["copies"]


def test_flows_lead_from_calls_to_work(trace):
    starts = {
        event["id"] for event in trace.events if event.get("cat") == "ac2g" and event["ph"] == "s"
    }
    ends = {
        event["id"] for event in trace.events if event.get("cat") == "ac2g" and event["ph"] == "f"
    }
    assert {event["args"]["correlation"] for event in trace.work} <= ends
    assert {event["args"]["correlation"] for event in trace.of("kernel")} <= starts


def test_work_belongs_to_the_operator_that_asked_for_it(trace):
    operators = {event["args"]["External id"]: event for event in trace.of("cpu_op")}
    asked = Counter(operators[event["args"]["External id"]]["name"] for event in trace.work)
    to_device = [event for event in trace.of("gpu_memcpy") if "HtoD" in event["name"]]
    assert Counter(operators[event["args"]["External id"]]["name"] for event in to_device) == {
        "aten::copy_": STEPS
    }
    assert asked["aten::_local_scalar_dense"] == STEPS, "one loss to the host a step"
    assert asked["aten::gelu"] == asked["aten::gelu_backward"] == STEPS
    products = {event["args"]["External id"] for event in trace.work}
    assert sum(operators[number]["name"] == "aten::addmm" for number in products) == 2 * STEPS


def test_kernels_have_demangled_names(trace):
    names = trace.names("kernel")
    written_by_torch = [name for name in names if "at::native" in name]
    assert sum(names[name] for name in written_by_torch) > 0.5 * sum(names.values())
    assert not [name for name in names if name.startswith("_Z") or "without a name" in name]
    # as in real traces: "void at::native::vectorized_elementwise_kernel<4,
    # at::native::FillFunctor<float>, std::array<char*, 1ul>, ..."
    assert any(
        re.match(
            r"void at::native::vectorized_elementwise_kernel<\d, at::native::GeluCUDAKernelImpl\(",
            name,
        )
        for name in names
    )
    assert any("multi_tensor_apply_kernel<" in name for name in names)


def test_kernels_have_their_grid_and_device(trace):
    for event in trace.of("kernel"):
        arguments = event["args"]
        assert min(arguments["grid"]) >= 1
        assert 1 <= arguments["block"][0] * arguments["block"][1] * arguments["block"][2] <= 1024
        assert (arguments["device"], arguments["stream"], event["pid"], event["tid"]) == (
            0,
            7,
            0,
            7,
        )
    gelu = [event for event in trace.of("kernel") if "GeluCUDAKernelImpl" in event["name"]]
    elements = ROWS * HIDDEN
    (grid,) = {tuple(event["args"]["grid"]) for event in gelu}
    assert grid in {(elements // 512, 1, 1), (elements // 1024, 1, 1)}, (
        "128 threads, four floats each; eight since torch 2.8"
    )


def test_kernels_have_the_registers_and_shared_memory_of_torchs_binaries(trace):
    """A mean is a reduction by blocks: 16 bytes of static shared memory (as in traces of an H100)
    and more with its warps.
    """
    native = [event["args"] for event in trace.of("kernel") if "at::native" in event["name"]]
    assert all(16 <= arguments["registers per thread"] <= 255 for arguments in native)
    assert len({arguments["registers per thread"] for arguments in native}) > 3, (
        "no number that stands for all"
    )
    reductions = [
        event["args"] for event in trace.of("kernel") if "reduce_kernel<512, 1," in event["name"]
    ]
    assert {arguments["shared memory"] % 512 for arguments in reductions} == {16}
    assert all(
        event["occupancy"]["allocatedRegistersPerBlock"] > 0
        for event in native
        if "occupancy" in event
    )


def test_the_device_does_one_thing_after_another(trace):
    ends = 0.0
    for event in trace.work:
        assert event["ts"] >= ends - 0.0015, "kineto rounds to nanoseconds"
        assert event["dur"] == pytest.approx(0.1, abs=0.003)
        ends = event["ts"] + event["dur"]


def test_its_events_are_marked(trace):
    marked = [event for event in trace.events if event.get("args", {}).get("context") is not None]
    assert len(marked) >= len(trace.work)
    assert {event["args"]["context"] for event in marked} == {MARK}


def test_batches_and_losses_are_copied(trace):
    between = Counter(copy for copy in sizes(trace) if "DtoD" not in copy[0])
    batch = ("Memcpy HtoD (Pageable -> Device)", ROWS * HIDDEN * 4)
    assert between == {batch: STEPS, ("Memcpy DtoH (Device -> Pinned)", 4): STEPS}


def test_the_host_waits_at_item(trace):
    operators = {event["args"]["External id"]: event["name"] for event in trace.of("cpu_op")}
    waits = [
        event for event in trace.of("cuda_runtime") if event["name"] == "cudaStreamSynchronize"
    ]
    owners = Counter(operators[event["args"]["External id"]] for event in waits)
    assert owners["aten::_local_scalar_dense"] == STEPS
    assert trace.names("cuda_sync")["Stream Sync"] == len(waits)
    last = {
        event["args"]["External id"]: event["ts"] + event["dur"] for event in trace.of("gpu_memcpy")
    }
    for event in waits:
        copied = last[event["args"]["External id"]]
        assert event["ts"] + event["dur"] >= copied - 0.0015, "a wait ends when the device is there"


def test_annotations_are_drawn_on_the_device(trace):
    annotations = trace.names("gpu_user_annotation")
    assert annotations["a step of ours"] == STEPS
    assert annotations["Optimizer.step#AdamW.step"] == STEPS


def test_the_table_names_kernels(run):
    for name in ("first", "second"):
        table = run.facts("plain")[f"table of {name}"]
        assert "Self CUDA" in table
        assert "a step of ours" in table


def test_nothing_was_said(run):
    """No word of kineto's about records that it does not understand; that of cudaEvent is torch's
    own (kineto_shim.cpp).
    """
    said = [line for line in run.result.stderr.splitlines() if "WARN" in line or "ERROR" in line]
    assert not said
