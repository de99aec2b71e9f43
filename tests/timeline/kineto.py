"""Small traces in Kineto's very text, and in the spellings of other years and writers."""

import gzip
import json

HEAD = (
    '{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {"id": 0, "name": "NVIDIA A100", '
    '"computeMajor": 8, "computeMinor": 0, "numSms": 108}\n  ],\n  "record_shapes": 1,\n  '
    '"distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},\n  "baseTimeNanoseconds": '
    '1000,\n  "traceEvents": [\n'
)
TAIL = '\n  ],\n  "traceName": "step.json"\n}'

HOST, BACKWARD = 100, 200
"""Threads of the forward and of the backward pass."""


def span(cat, name, ts, dur, *, pid=1, tid=HOST, **args):
    event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    event["args"] = args
    return {key: value for key, value in event.items() if value is not None}


def op(name, ts, dur, tid=HOST, **args):
    return span("cpu_op", name, ts, dur, tid=tid, **args)


def note(name, ts, dur, tid=HOST):
    return span("user_annotation", name, ts, dur, tid=tid)


def call(name, ts, dur, correlation=0, tid=HOST):
    return span("cuda_runtime", name, ts, dur, tid=tid, correlation=correlation)


def mark(ts, dur, number=1):
    return note(f"ProfilerStep#{number}", ts, dur)


def loading(ts, dur, tid=HOST):
    return note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", ts, dur, tid)


def launch(ts, dur, correlation=0, tid=HOST):
    return call("cudaLaunchKernel", ts, dur, correlation, tid)


def sync(ts, dur, correlation=0, tid=HOST):
    return call("cudaStreamSynchronize", ts, dur, correlation, tid)


def kernel(name, ts, dur, correlation=0, stream=7, device=0):
    where = {"device": device, "stream": stream, "correlation": correlation}
    return span("kernel", name, ts, dur, pid=device, tid=stream, **where)


def memcpy(kind, ts, dur, correlation, size=4, stream=7):
    where = {"device": 0, "stream": stream, "correlation": correlation, "bytes": size}
    return span("gpu_memcpy", f"Memcpy {kind}", ts, dur, pid=0, tid=stream, **where)


def memset(memory, ts, dur, correlation, stream=7):
    where = {"device": 0, "stream": stream, "correlation": correlation, "bytes": 4096}
    return span("gpu_memset", f"Memset ({memory})", ts, dur, pid=0, tid=stream, **where)


def frame(name, ts, dur, tid=HOST):
    return span("python_function", name, ts, dur, tid=tid)


def memory(ts, size, total, reserved=None, device_type=1):
    reserved = 2 * total if reserved is None else reserved
    args = {"Bytes": size, "Total Allocated": total, "Total Reserved": reserved}
    args |= {"Device Type": device_type, "Device Id": 0}
    where = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1}
    return {**where, "tid": HOST, "ts": ts, "args": args}


def text(events, head=HEAD, tail=TAIL):
    """The trace as Kineto lays it out: the boundary of two events is always the same."""
    rows = "\n  },\n  {\n    ".join(json.dumps(event)[1:-1] for event in events)
    return f"{head}  {{\n    {rows}\n  }}{tail}"


def head_with_memory(capacity):
    """The head of a trace whose device has ``capacity`` bytes."""
    return HEAD.replace('"numSms": 108', f'"numSms": 108, "totalGlobalMem": {capacity}')


def redumped(events):
    """The trace after another JSON writer."""
    return json.dumps(json.loads(text(events)))


def in_lines(events):
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


def write(folder, content, name="trace.json"):
    path = folder / name
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


SQUARES = {"Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"]}


def training_step(number, start):
    """1000 us: a loader, a product, ``loss.item()`` that waits for it, backward, optimizer."""
    first = 1000 * number
    return [
        note(f"ProfilerStep#{number}", start, 1000),
        note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start + 10, 40),
        op("aten::mm", start + 60, 20, **SQUARES),
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


def training(steps=3):
    """Steps one behind the other, and the profiler's own wait at its stop."""
    events = [
        event for number in range(1, steps + 1) for event in training_step(number, 1000.0 * number)
    ]
    return [*events, call("cudaDeviceSynchronize", 1000.0 * steps + 1200, 30, 9_999_999)]


def loop(steps, us, body):
    """Marked steps of ``us`` each from ``us`` on; ``body(number, start)`` gives what is in one."""
    events = []
    for number in range(1, steps + 1):
        start = us * number
        events += [note(f"ProfilerStep#{number}", start, us), *body(number, start)]
    return [*events, call("cudaDeviceSynchronize", us * (steps + 1) + 200, 30, 9_999_999)]


def product(start, correlation, us=300):
    """A matrix product that is launched at once and takes the device ``us``."""
    return [
        op("aten::mm", start, 20),
        call("cudaLaunchKernel", start + 5, 5, correlation),
        kernel("ampere_sgemm_128x64_nn", start + 15, us, correlation),
    ]
