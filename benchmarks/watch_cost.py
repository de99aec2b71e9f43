"""What a watched step costs between looks: a training loop with ``auditor.watch(every=...)`` around it
against the same loop without, in turn.

    OMP_NUM_THREADS=1 python benchmarks/watch_cost.py [rounds] [ms]
    OMP_NUM_THREADS=1 python benchmarks/watch_cost.py alone [rounds] [ms]
    OMP_NUM_THREADS=1 python benchmarks/watch_cost.py long [steps]

The step is a small model that trains, stretched to ``ms`` (20) by more layers. A round is four
blocks, two of them watched, in the order ABBA or BAAB; its ratio of CPU times of this thread is
what counts (the clock's is printed beside it), and the interval is that of the median over all
rounds (binomial, 95 %). The goal: under 0.5 % of a 20 ms step. Between looks means that none is due: every=10**9.

On a busy machine that interval is as wide as the machine is noisy. ``alone`` has a step that sleeps
for 20 ms and then steps an optimizer of one number: what our code takes of it is told to the
microsecond.

``long`` is one run of 20,000 steps with every=1000 and all that comes with it; it prints cost and
memory over time.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import auditor  # noqa: E402
from auditor.extensions.longrun.meter import host_bytes  # noqa: E402

BLOCK = 8
SETTLED_S, LONE_S = 0.2, 5.2
"""In five seconds everything that comes by the clock comes once."""


def trained(layers: int) -> Callable[[], torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.GELU()) for _ in range(layers)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.randn(64, 128)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(data).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def fitted(ms: float) -> tuple[Callable[[], torch.Tensor], int]:
    """A step that takes about so long."""
    layers = 8
    while True:
        step = trained(layers)
        for _ in range(10):
            step()
        begin = time.thread_time()
        for _ in range(20):
            step()
        took = 50 * (time.thread_time() - begin)
        if took > 0.8 * ms:
            return step, layers
        layers = max(layers + 1, round(layers * ms / took))


def block(step: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of CPU of this thread, and of the clock, per step."""
    cpu, clock = time.thread_time(), time.perf_counter()
    for _ in range(BLOCK):
        step()
    scale = 1e3 / BLOCK
    return scale * (time.thread_time() - cpu), scale * (time.perf_counter() - clock)


def interval(values: list[float]) -> tuple[float, float]:
    """The median's, 95 %, by order statistics."""
    ordered, n = sorted(values), len(values)
    reach = 0.98 * math.sqrt(n)
    low, high = max(0, int(n / 2 - reach)), min(n - 1, math.ceil(n / 2 + reach))
    return ordered[low], ordered[high]


def told(name: str, values: list[float], unit: str, digits: int) -> None:
    low, high = interval(values)
    middle = statistics.median(values)
    print(f"{name:34} {middle:8.{digits}f} {unit}  [{low:.{digits}f} to {high:.{digits}f}]")


def short(rounds: int, ms: float) -> None:
    step, layers = fitted(ms)
    plain: list[float] = []
    cpu: list[float] = []
    clock: list[float] = []
    noise: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        watch = auditor.watch(every=10**9, out=folder)
        for number in range(rounds):
            gc.collect()
            first = (False, True, True, False) if number % 2 else (True, False, False, True)
            seen: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            for watched in first:
                with watch if watched else contextlib.nullcontext():
                    step()
                    seen[watched].append(block(step))
            on, off = (tuple(map(sum, zip(*seen[each], strict=True))) for each in (True, False))
            plain.append(off[0] / 2)
            cpu.append(100 * (on[0] / off[0] - 1))
            clock.append(100 * (on[1] / off[1] - 1))
            noise.append(100 * (seen[False][0][0] / seen[False][1][0] - 1))
    print(f"{layers} layers, {rounds} rounds of four blocks of {BLOCK} steps")
    told("step, CPU", plain, "ms", 2)
    told("watched, CPU", cpu, "%", 3)
    told("watched, clock", clock, "%", 3)
    told("not watched, twice (noise), CPU", noise, "%", 3)


def alone(rounds: int, ms: float) -> None:
    """What our own code takes: of a step that sleeps and then steps an optimizer of one number, so
    that the CPU time of this thread is hardly anything else, with all that comes by the clock.
    """
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.0)

    def step() -> None:
        time.sleep(ms / 1e3)
        optimizer.step()

    settled, lone = (max(1, round(1e3 * each / ms)) for each in (SETTLED_S, LONE_S))
    added: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            seen: dict[bool, float] = {False: 0.0, True: 0.0}
            for watched in (True, False, False, True):
                watch = auditor.watch(every=10**9, out=folder) if watched else None
                with watch or contextlib.nullcontext():
                    for _ in range(settled):
                        step()
                    begin = time.thread_time()
                    for _ in range(lone):
                        step()
                    seen[watched] += time.thread_time() - begin
            added.append(1e6 * (seen[True] - seen[False]) / (2 * lone))
    told(f"added to a step of {ms:g} ms", added, "us", 2)
    told("of its time", [each / ms / 10 for each in added], "%", 4)


def long(steps: int) -> None:
    step, layers = fitted(20.0)
    marks = max(1, steps // 10)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        print(f"{layers} layers; host memory at the beginning {host_bytes() or 0:,}")
        with auditor.watch(every=1000, out=folder) as watch:
            for number in range(1, steps + 1):
                loss = step()
                if number % 100 == 0:
                    watch.log(loss=loss.item())
                if number % marks == 0:
                    seconds = time.perf_counter() - begin
                    disk = sum(each.stat().st_size for each in Path(folder).rglob("*.*"))
                    print(
                        f"{number:8,} steps {seconds:8.1f} s  {1e3 * seconds / number:7.2f} ms/step"
                        f"  host {(host_bytes() or 0) / 2**20:8.1f} MiB  disk {disk / 2**20:6.2f} MiB"
                    )
        for line in (Path(folder) / "watch.jsonl").read_text().splitlines():
            row = json.loads(line)
            if row["kind"] not in ("pulse", "started"):
                print(row["kind"], row["step"], {k: row.get(k) for k in ("why", "added_s", "what")})
        print(os.path.getsize(Path(folder) / "watch.jsonl"), "bytes of watch.jsonl")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["alone"]:
        given = sys.argv[2:]
        alone(int(given[0]) if given else 12, float(given[1]) if len(given) > 1 else 20.0)
    elif sys.argv[1:2] == ["long"]:
        long(int(sys.argv[2]) if len(sys.argv) > 2 else 20_000)
    else:
        given = sys.argv[1:]
        short(int(given[0]) if given else 150, float(given[1]) if len(given) > 1 else 20.0)
