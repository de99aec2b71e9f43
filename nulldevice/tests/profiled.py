"""A small training under torch.profiler in several ways, on a CUDA device: `python profiled.py
FOLDER PART ...`.

Each part writes its traces and what it knows by construction (`PART.json`) into the folder;
test_profiler_*.py read them."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function, schedule

BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
STEPS = 5
ROWS, HIDDEN = 160, 64


class Training:
    """Two linear layers and AdamW on the device; batches of ROWS rows come from pageable memory."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers = torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.GELU(), torch.nn.Linear(HIDDEN, 1)
        self.model = torch.nn.Sequential(*layers).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=True)

    def step(self) -> float:
        with record_function("a step of ours"):
            loss = self.model(torch.randn(ROWS, HIDDEN).cuda()).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            return loss.item()


def counted() -> dict[str, int]:
    """The null device's own counters, which know nothing of CUPTI; empty on a real device."""
    try:
        ask = ctypes.CDLL(None).nulldevice_counter
    except AttributeError:
        return {}
    ask.restype = ctypes.c_uint64
    return {
        name: ask(number) for number, name in enumerate(("launches", "library launches", "copies"))
    }


def since(before: dict[str, int]) -> dict[str, int]:
    """By how much the counters grew."""
    return {name: number - before[name] for name, number in counted().items()}


def plain(folder: Path) -> dict[str, Any]:
    """Five steps, twice, each under a profiler of its own that also asks for synchronizations."""
    training = Training()
    training.step()
    facts: dict[str, Any] = {}
    for name in ("first", "second"):
        config = _ExperimentalConfig(enable_cuda_sync_events=True)
        with profile(activities=BOTH, record_shapes=True, experimental_config=config) as profiler:
            before = counted()
            for _ in range(STEPS):
                training.step()
            facts[name] = since(before)
        profiler.export_chrome_trace(str(folder / f"{name}.json"))
        facts[f"table of {name}"] = profiler.key_averages().table(
            sort_by="device_time_total", row_limit=10
        )
    return facts


def scheduled(folder: Path) -> dict[str, Any]:
    """wait 1, warm-up 1, active 3, twice; memory, shapes and stacks as well."""
    training = Training()
    written: list[str] = []

    def ready(profiler: Any) -> None:
        written.append(f"cycle{len(written)}.json")
        profiler.export_chrome_trace(str(folder / written[-1]))

    plan = schedule(wait=1, warmup=1, active=3, repeat=2)
    options = {"record_shapes": True, "profile_memory": True, "with_stack": True}
    with profile(activities=BOTH, schedule=plan, on_trace_ready=ready, **options) as profiler:
        for _ in range(12):
            training.step()
            profiler.step()
    return {"written": written}


def copies(folder: Path) -> dict[str, Any]:
    """One copy of each kind, of a size of its own, and fills; on two streams with an event between
    them.
    """
    device = torch.zeros(1000, device="cuda")
    pinned, pageable = torch.zeros(1001).pin_memory(), torch.zeros(1002)
    into_pinned = torch.zeros(1003).pin_memory()
    runtime = ctypes.CDLL(None) if counted() else torch.cuda.cudart()
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    config = _ExperimentalConfig(enable_cuda_sync_events=True)
    with profile(activities=BOTH, experimental_config=config) as profiler:
        pinned.cuda(non_blocking=True)
        pageable.cuda()
        device[:999].clone()
        into_pinned.copy_(torch.empty(1003, device="cuda"), non_blocking=True)
        torch.empty(1004, device="cuda").cpu()
        event.record()
        side.wait_event(event)
        with torch.cuda.stream(side):
            device.add_(1)
        side.synchronize()
        event.synchronize()
        torch.cuda.synchronize()
        if counted():
            pointer, stream = ctypes.c_void_p(device.data_ptr()), ctypes.c_void_p(0)
            runtime.cudaMemsetAsync(pointer, 1, ctypes.c_size_t(77), stream)
    profiler.export_chrome_trace(str(folder / "copies.json"))
    return {"devices": torch.cuda.device_count()}


def peers(folder: Path) -> dict[str, Any]:
    """Work and a copy between two devices."""
    on_first = torch.ones(500, device="cuda:0")
    torch.ones(1, device="cuda:1").add_(1)
    with profile(activities=BOTH) as profiler:
        on_first.to("cuda:1").mul_(2)
        torch.cuda.synchronize(1)
    profiler.export_chrome_trace(str(folder / "peers.json"))
    return {}


def threads(folder: Path) -> dict[str, Any]:
    """Three threads with a stream each."""

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                torch.empty(10, device="cuda").add_(1)

    workers = [threading.Thread(target=work) for _ in range(3)]
    torch.empty(10, device="cuda").add_(1)
    with profile(activities=BOTH) as profiler:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    profiler.export_chrome_trace(str(folder / "threads.json"))
    return {"launches": 150}


def many(folder: Path) -> dict[str, Any]:
    """More records than fit into one of kineto's buffers (4 MiB)."""
    x = torch.zeros(10, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(20_000):
            x.add_(1)
    profiler.export_chrome_trace(str(folder / "many.json"))
    return {"launches": 20_000}


def graphed(folder: Path) -> dict[str, Any]:
    """A CUDA graph of three kernels, captured unwatched and launched under the profiler."""
    x = torch.zeros(10, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            x.add_(1)
    with profile(activities=BOTH) as profiler:
        for _ in range(2):
            graph.replay()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(folder / "graphed.json"))
    return {"launches": 2, "kernels": 3}


def products(folder: Path) -> dict[str, Any]:
    """Three products (mm, bmm, addmm) in each arithmetic, a trace for each."""
    types = {
        "fp32": torch.float32,
        "tf32": torch.float32,
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp64": torch.float64,
    }
    for name, dtype in types.items():
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        a, batch, bias = (
            torch.ones(*shape, device="cuda", dtype=dtype)
            for shape in ((64, 64), (3, 64, 64), (64,))
        )
        with profile(activities=BOTH) as profiler:
            torch.addmm(bias, a @ a, (batch @ batch)[0])
        profiler.export_chrome_trace(str(folder / f"{name}.json"))
    return {"arithmetics": list(types)}


def ranges(folder: Path) -> dict[str, Any]:
    """NVTX ranges, emit_nvtx, cudaProfilerStart and the profiler of torch.autograd."""
    training = Training()
    torch.cuda.nvtx.range_push("outer")
    torch.cuda.nvtx.mark("a mark")
    with torch.cuda.nvtx.range("inner"), torch.autograd.profiler.emit_nvtx(record_shapes=True):
        training.step()
    torch.cuda.nvtx.range_pop()
    torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("from here to there"))
    with torch.cuda.profiler.profile():
        training.step()
    with torch.autograd.profiler.profile(use_device="cuda") as by_events:
        training.step()
    with torch.autograd.profiler.profile(use_device="cuda", use_kineto=True) as profiler:
        training.step()
    profiler.export_chrome_trace(str(folder / "autograd.json"))
    return {"operators": [event.key for event in by_events.key_averages()]}


def torn_down(folder: Path) -> dict[str, Any]:
    """With TEARDOWN_CUPTI=1 kineto ends CUPTI after a trace and begins anew at the next."""
    training = Training()
    training.step()
    for name in ("before", "after"):
        with profile(activities=BOTH) as profiler:
            training.step()
        profiler.export_chrome_trace(str(folder / f"{name}.json"))
        for _ in range(
            20
        ):  # kineto ends CUPTI in a thread of its own, at a later call of the runtime
            training.step()
            threading.Event().wait(0.02)
    return {}


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    part.__name__: part
    for part in (
        plain,
        scheduled,
        copies,
        peers,
        threads,
        many,
        graphed,
        products,
        ranges,
        torn_down,
    )
}

if __name__ == "__main__":
    for name in sys.argv[2:]:
        found = PARTS[name](Path(sys.argv[1]))
        (Path(sys.argv[1]) / f"facts-{name}.json").write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # conftest.py says why
