"""torch.profiler on the null device in other ways: schedules, copies of each kind, threads,
devices, graphs, teardown.
"""

from __future__ import annotations

from collections import Counter

import pytest
from profiler_runs import MARK, Run, sizes


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(
        tmp_path_factory.mktemp("ways"),
        "scheduled",
        "copies",
        "threads",
        "many",
        "products",
        "ranges",
    )


def test_a_schedule_writes_a_trace_a_cycle(run):
    written = run.facts("scheduled")["written"]
    assert written == ["cycle0.json", "cycle1.json"]
    kernels = set()
    for name, first in zip(written, (2, 7), strict=True):
        trace = run.trace(name.removesuffix(".json"))
        steps = trace.names("user_annotation")
        assert {step for step in steps if step.startswith("ProfilerStep")} == {
            f"ProfilerStep#{first + number}" for number in range(3)
        }
        assert all(event["args"]["correlation"] in trace.calls for event in trace.work)
        assert trace.of("python_function"), "with_stack"
        assert any(
            event["name"] == "[memory]" and event["args"]["Device Type"] == 1
            for event in trace.events
        ), "profile_memory"
        assert any("Input Dims" in event["args"] for event in trace.of("cpu_op")), "record_shapes"
        kernels.add(len(trace.of("kernel")))
    assert len(kernels) == 1, "both cycles show the same three steps"


def test_copies_have_their_kind_and_bytes(run):
    trace = run.trace("copies")
    assert sizes(trace) == [
        ("Memcpy HtoD (Pinned -> Device)", 4004),
        ("Memcpy HtoD (Pageable -> Device)", 4008),
        ("Memcpy DtoD (Device -> Device)", 3996),
        ("Memcpy DtoH (Device -> Pinned)", 4012),
        ("Memcpy DtoH (Device -> Pageable)", 4016),
    ]


def test_fills_have_their_bytes(run):
    fills = run.trace("copies").of("gpu_memset")
    assert [(event["name"], event["args"]["bytes"]) for event in fills] == [("Memset (Device)", 77)]


def test_waits_have_their_kind_stream_and_event(run):
    trace = run.trace("copies")
    kinds = trace.names("cuda_sync")
    assert kinds["Event Sync"] == kinds["Stream Wait Event"] == 1
    assert kinds["Context Sync"] >= 1
    waited = next(event for event in trace.of("cuda_sync") if event["name"] == "Stream Wait Event")[
        "args"
    ]
    on_side = next(event for event in trace.of("kernel") if event["tid"] != 7)
    assert waited["stream"] == on_side["args"]["stream"]
    recorded = trace.calls[waited["wait_on_cuda_event_record_corr_id"]]
    assert recorded["name"].startswith("cudaEventRecord")
    assert waited["wait_on_stream"] == 7
    synchronized = next(event for event in trace.of("cuda_sync") if event["name"] == "Event Sync")[
        "args"
    ]
    assert synchronized["wait_on_cuda_event_id"] == waited["wait_on_cuda_event_id"]


def test_threads_have_streams_of_their_own(run):
    trace = run.trace("threads")
    kernels = trace.of("kernel")
    assert len(kernels) == run.facts("threads")["launches"]
    assert len({event["args"]["correlation"] for event in kernels}) == len(kernels)
    streams: dict[int, set[int]] = {}
    for event in kernels:
        streams.setdefault(event["tid"], set()).add(
            trace.calls[event["args"]["correlation"]]["tid"]
        )
    assert len(streams) == 3
    assert all(len(callers) == 1 for callers in streams.values()), (
        "each stream was fed by one thread"
    )


def test_no_record_is_lost_where_buffers_are_changed(run):
    trace = run.trace("many")
    kernels = trace.of("kernel")
    assert len(kernels) == run.facts("many")["launches"]
    assert {event["args"]["correlation"] for event in kernels} <= set(trace.calls)
    assert all(
        later["ts"] >= event["ts"] + event["dur"] - 0.0015
        for event, later in zip(kernels, kernels[1:], strict=False)
    )


def test_products_tell_their_arithmetic(run):
    """By name, as real kernels do."""
    for name in run.facts("products")["arithmetics"]:
        kernels = [event["name"] for event in run.trace(name).of("kernel")]
        products = [kernel for kernel in kernels if "emm" in kernel]
        spelled = ("cublasDgemm", f"_{name}") if name == "fp64" else (f"_{name}",)
        assert len(products) == 3, kernels
        assert all(any(word in product for word in spelled) for product in products), products


def test_nvtx_and_the_old_profiler(run):
    assert run.trace("autograd").of("kernel")
    assert "aten::addmm" in run.facts("ranges")["operators"]


def test_two_devices(tmp_path):
    trace = Run(tmp_path, "peers", devices=2).trace("peers")
    assert ("Memcpy PtoP (Device -> Device)", 2000) in sizes(trace)
    (multiplied,) = [event for event in trace.of("kernel") if "MulFunctor" in event["name"]]
    assert (multiplied["pid"], multiplied["args"]["device"], multiplied["args"]["context"]) == (
        1,
        1,
        MARK + 1,
    )
    assert [entry["id"] for entry in trace.document["deviceProperties"]] == [0, 1]


def test_a_graph_launches_its_kernels(tmp_path):
    run = Run(tmp_path, "graphed")
    trace = run.trace("graphed")
    launches = [event for event in trace.of("cuda_runtime") if event["name"] == "cudaGraphLaunch"]
    assert len(launches) == run.facts("graphed")["launches"]
    by_launch = Counter(event["args"]["correlation"] for event in trace.of("kernel"))
    for event in launches:
        assert by_launch[event["args"]["correlation"]] >= run.facts("graphed")["kernels"]
    graphs = {event["args"]["correlation"] for event in launches}
    captured = [event for event in trace.of("kernel") if event["args"]["correlation"] in graphs]
    assert captured and all(event["args"]["graph node id"] for event in captured)
    assert {str(event["args"][side]) for event in captured for side in ("grid", "block")} == {
        "[1, 1, 1]"  # README.md says so
    }


def test_cupti_ends_and_begins_anew(tmp_path):
    run = Run(tmp_path, "torn_down", TEARDOWN_CUPTI="1")
    before, after = run.trace("before"), run.trace("after")
    assert len(before.of("kernel")) == len(after.of("kernel")) > 10
