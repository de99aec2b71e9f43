"""What a watched step costs between looks (none is due: every=10**9): a loop that sleeps and then
steps an optimizer of one number, with ``auditor.watch(every=...)`` around it and without, in turn.

    OMP_NUM_THREADS=1 python benchmarks/watch_cost.py [rounds] [ms]

The CPU time of the thread is what counts; the interval is that of the median over all rounds
(binomial, 95 %).
"""

from __future__ import annotations

import contextlib
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import auditor  # noqa: E402

SETTLED_S, LONE_S = 0.2, 2.0
"""Of each block: not measured, and measured."""


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


def measure(rounds: int, ms: float) -> None:
    """What our own code takes: of a step that sleeps and then steps an optimizer of one number, so
    that the CPU time of this thread is hardly anything else.
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


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = sys.argv[1:]
    measure(int(given[0]) if given else 12, float(given[1]) if len(given) > 1 else 20.0)
