"""Streams, events, waits and captures; the log of calls that block."""

from __future__ import annotations

import threading
import time
import warnings

import pytest
import torch

from torch_null_device import watching

pytestmark = pytest.mark.usefixtures("inside")


def waits(work) -> list[str]:
    """Calls that made the host wait while ``work`` ran."""
    mark = watching.mark()
    work()
    return [one.call for one in watching.blocking(mark) if one.waits]


def test_events_take_the_host_s_clock():
    first, second = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    time.sleep(0.02)
    second.record()
    second.synchronize()
    assert 20 <= first.elapsed_time(second) < 5000
    with pytest.raises((RuntimeError, ValueError)):
        first.elapsed_time(torch.cuda.Event(enable_timing=True))


def test_work_of_streams_is_done_when_it_is_asked_for():
    stream = torch.cuda.Stream(priority=-1)
    with torch.cuda.stream(stream):
        tensor = torch.randn(10, device="cuda")
        tensor.record_stream(torch.cuda.current_stream())
    assert stream.query()
    assert stream.priority < 0
    torch.cuda.current_stream().wait_stream(stream)


@pytest.mark.parametrize(
    ("work", "calls"),
    [
        (lambda x: x.sum().item(), ["cudaMemcpyAsync", "cudaStreamSynchronize"]),
        (lambda x: x.cpu(), ["cudaMemcpyAsync", "cudaStreamSynchronize"]),
        (lambda x: x.nonzero(), ["cudaMemcpyAsync", "cudaStreamSynchronize"]),
        (lambda x: torch.cuda.synchronize(), ["cudaDeviceSynchronize"]),
        (lambda x: torch.cuda.current_stream().synchronize(), ["cudaStreamSynchronize"]),
        (lambda x: x + x, []),
        (lambda x: torch.randn(4).pin_memory().to("cuda", non_blocking=True), []),
        (lambda x: x.to("cpu", non_blocking=True), []),
    ],
    ids=["item", "cpu", "nonzero", "synchronize", "stream", "add", "pinned", "non_blocking"],
)
def test_calls_that_block_are_logged(work, calls):
    tensor = torch.randn(4, device="cuda")
    work(tensor)  # what is made once
    found = waits(lambda: work(tensor))
    assert [call for call in found if call != "cudaMemcpyAsync"] == [
        call for call in calls if call != "cudaMemcpyAsync"
    ]
    assert bool(found) == bool(calls)


def test_a_logged_call_tells_bytes_times_and_thread():
    tensor = torch.zeros(1000, device="cuda")
    mark, before = watching.mark(), time.monotonic_ns()
    tensor.cpu()
    after = time.monotonic_ns()
    found = watching.blocking(mark, watching.mark())
    assert max(one.bytes for one in found) == 4000
    assert all(before <= one.begin_ns <= one.end_ns <= after for one in found)
    assert {one.thread for one in found} == {threading.get_native_id()}
    assert [one.number for one in found] == list(range(mark, mark + len(found)))
    assert watching.blocking(watching.mark()) == []


def test_the_log_keeps_the_last_calls():
    mark = watching.mark()
    stream = torch.cuda.current_stream()
    for _ in range(66_000):
        stream.synchronize()
    found = watching.blocking(mark)
    assert len(found) == 1 << 16
    assert found[-1].number == watching.mark() - 1


def test_torch_warns_of_synchronizations_at_the_line():
    tensor = torch.randn(3, device="cuda")
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            line = test_torch_warns_of_synchronizations_at_the_line.__code__.co_firstlineno + 7
            tensor.sum().item()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    synchronizing = [one for one in caught if "synchronizing" in str(one.message)]
    assert [(one.filename, one.lineno) for one in synchronizing] == [(__file__, line)]


def test_a_graph_is_captured_and_replayed():
    layer, given = torch.nn.Linear(8, 8).cuda(), torch.randn(4, 8, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        layer(given)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    launches = watching.counters()
    with torch.cuda.graph(graph):
        out = layer(given)
    assert watching.counters()["library_launches"] == launches["library_launches"], (
        "captured, not launched"
    )
    graph.replay()
    graph.replay()
    assert watching.counters()["graph_launches"] == launches["graph_launches"] + 2
    assert out.shape == (4, 8)


def test_a_wait_during_a_capture_is_torch_s_own_error():
    tensor = torch.randn(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="captur"), torch.cuda.graph(graph):
        tensor.sum().item()
    torch.cuda.synchronize()
    assert not torch.cuda.is_current_stream_capturing()
    tensor.sum().item()


def test_random_numbers_in_a_graph():
    layer, given = torch.nn.Dropout().cuda(), torch.randn(4, 8, device="cuda")
    layer(given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer(given)
    graph.replay()


def test_many_threads_at_once():
    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(100):
                tensor = torch.randn(64, 64, device="cuda")
                (tensor @ tensor).sum().item()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
