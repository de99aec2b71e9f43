"""Small traces in the very text that Kineto writes, and in the spellings of other years and
writers.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

HEAD = (
    '{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {"id": 0, "name": "NVIDIA A100", '
    '"computeMajor": 8, "computeMinor": 0, "numSms": 108}\n  ],\n  "record_shapes": 1,\n  '
    '"distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},\n  "baseTimeNanoseconds": '
    '1000,\n  "traceEvents": [\n'
)
TAIL = '\n  ],\n  "traceName": "step.json"\n}'

HOST, BACKWARD = 100, 200
"""Threads of the forward and of the backward pass."""


def span(
    cat: str | None,
    name: str,
    ts: float,
    dur: float | None,
    *,
    pid: Any = 1,
    tid: Any = HOST,
    **args: Any,
) -> dict[str, Any]:
    event = {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }
    return {key: value for key, value in event.items() if value is not None}


def op(name: str, ts: float, dur: float, tid: Any = HOST, **args: Any) -> dict[str, Any]:
    return span("cpu_op", name, ts, dur, tid=tid, **args)


def note(name: str, ts: float, dur: float, tid: Any = HOST) -> dict[str, Any]:
    return span("user_annotation", name, ts, dur, tid=tid)


def call(name: str, ts: float, dur: float, correlation: int = 0, tid: Any = HOST) -> dict[str, Any]:
    return span("cuda_runtime", name, ts, dur, tid=tid, correlation=correlation)


def kernel(
    name: str, ts: float, dur: float, correlation: int = 0, stream: int = 7, device: int = 0
) -> dict[str, Any]:
    return span(
        "kernel",
        name,
        ts,
        dur,
        pid=device,
        tid=stream,
        device=device,
        stream=stream,
        correlation=correlation,
    )


def memcpy(
    kind: str, ts: float, dur: float, correlation: int, size: int = 4, stream: int = 7
) -> dict[str, Any]:
    where = {"device": 0, "stream": stream, "correlation": correlation, "bytes": size}
    return span("gpu_memcpy", f"Memcpy {kind}", ts, dur, pid=0, tid=stream, **where)


def memset(memory: str, ts: float, dur: float, correlation: int, stream: int = 7) -> dict[str, Any]:
    where = {"device": 0, "stream": stream, "correlation": correlation, "bytes": 4096}
    return span("gpu_memset", f"Memset ({memory})", ts, dur, pid=0, tid=stream, **where)


def frame(name: str, ts: float, dur: float, tid: Any = HOST) -> dict[str, Any]:
    return span("python_function", name, ts, dur, tid=tid)


def memory(
    ts: float, size: int, total: int, reserved: int | None = None, device_type: int = 1
) -> dict[str, Any]:
    reserved = 2 * total if reserved is None else reserved
    args = {
        "Bytes": size,
        "Total Allocated": total,
        "Total Reserved": reserved,
        "Device Type": device_type,
        "Device Id": 0,
    }
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": 1,
        "tid": HOST,
        "ts": ts,
        "args": args,
    }


def text(events: list[dict[str, Any]], head: str = HEAD, tail: str = TAIL) -> str:
    """The trace as Kineto lays it out: the boundary of two events is always the same."""
    return (
        head
        + "  {\n    "
        + "\n  },\n  {\n    ".join(json.dumps(event)[1:-1] for event in events)
        + "\n  }"
        + tail
    )


def head_with_memory(capacity: int) -> str:
    """The head of a trace whose device has ``capacity`` bytes."""
    return HEAD.replace('"numSms": 108', f'"numSms": 108, "totalGlobalMem": {capacity}')


def redumped(events: list[dict[str, Any]]) -> str:
    """The same after another JSON writer."""
    return json.dumps(json.loads(text(events)))


def in_lines(events: list[dict[str, Any]]) -> str:
    """As torch 2.13's exporter in Python writes: one event a line."""
    document = json.loads(text(events))
    rows = ",\n".join(
        json.dumps(event, separators=(",", ":")) for event in document.pop("traceEvents")
    )
    head = ",\n".join(
        f"{json.dumps(key)}: {json.dumps(value)}"
        for key, value in document.items()
        if key != "traceName"
    )
    return f'{{\n{head},\n"traceEvents": [\n{rows}\n],\n"traceName": "step.json"\n}}\n'


def write(folder: Path, content: str | bytes, name: str = "trace.json") -> Path:
    path = folder / name
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def training_step(number: int, start: float) -> list[dict[str, Any]]:
    """One step of 1000 us: a loader, a product, ``loss.item()`` that waits for it, a backward pass,
    an optimizer.
    """
    first = 1000 * number
    return [
        note(f"ProfilerStep#{number}", start, 1000),
        note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start + 10, 40),
        op(
            "aten::mm",
            start + 60,
            20,
            **{"Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"]},
        ),
        call("cudaLaunchKernel", start + 65, 5, first + 1),
        kernel("ampere_sgemm_128x64_nn", start + 75, 300, first + 1),
        op("aten::item", start + 100, 300),
        op("aten::_local_scalar_dense", start + 101, 298),
        call("cudaMemcpyAsync", start + 102, 280, first + 2),
        memcpy("DtoH (Device -> Pageable)", start + 376, 4, first + 2),
        call("cudaStreamSynchronize", start + 384, 10, first + 3),
        op("autograd::engine::evaluate_function: MmBackward0", start + 420, 60, BACKWARD),
        op("aten::mm", start + 425, 30, BACKWARD),
        call("cudaLaunchKernel", start + 430, 5, first + 4, BACKWARD),
        kernel("ampere_bf16_s16816gemm_bf16_128x64", start + 440, 100, first + 4),
        note("Optimizer.step#SGD.step", start + 600, 100),
        op("aten::_foreach_add_", start + 605, 50),
        call("cudaLaunchKernel", start + 610, 5, first + 5),
        kernel("multi_tensor_apply_kernel", start + 620, 20, first + 5),
    ]


def training(steps: int = 3) -> list[dict[str, Any]]:
    """Steps one behind the other, and the profiler's own wait at its stop."""
    events = [
        event for number in range(1, steps + 1) for event in training_step(number, 1000.0 * number)
    ]
    return [*events, call("cudaDeviceSynchronize", 1000.0 * steps + 1200, 30, 9_999_999)]


def loop(
    steps: int, us: float, body: Callable[[int, float], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Marked steps of ``us`` each, one behind the other, the first at ``us``; ``body(number,
    start)`` gives what is in one.
    """
    events = []
    for number in range(1, steps + 1):
        start = us * number
        events += [note(f"ProfilerStep#{number}", start, us), *body(number, start)]
    return [*events, call("cudaDeviceSynchronize", us * (steps + 1) + 200, 30, 9_999_999)]


def product(start: float, correlation: int, us: float = 300) -> list[dict[str, Any]]:
    """A matrix product that is launched at once and takes the device ``us``."""
    return [
        op("aten::mm", start, 20),
        call("cudaLaunchKernel", start + 5, 5, correlation),
        kernel("ampere_sgemm_128x64_nn", start + 15, us, correlation),
    ]
