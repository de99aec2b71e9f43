"""How often is a difference of two passes of one unchanged program called proven, on the machine as
it is?

    OMP_NUM_THREADS=1 python benchmarks/price_noise.py [pairs, default 300]

Each pair is two passes of 50 steps in one process, as NUM009 has them. What was done before is
counted beside it: raw step times, and the notches of box plots, which take steps as independent.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from auditor.capture.probes.step.clock import RunQueue
from auditor.evidence.recorded.steps import Step, Steps, queued_share

STEPS = 50


def passed(model: torch.nn.Module, batch: torch.Tensor, queue: RunQueue) -> tuple[Step, ...]:
    """One pass: times as the auditor's own clock takes them."""
    steps = []
    for number in range(STEPS):
        mark = queue.mark()
        model(batch).square().mean().backward()
        us, queued_us = queue.since(mark)
        steps.append(Step(number, us, queued_us=queued_us))
    return tuple(steps)


def notch(steps: tuple[Step, ...]) -> float:
    """Half the 95 % interval of the median of independent values (McGill, Tukey and Larsen
    1978).
    """
    low, _, high = quantiles([step.us for step in steps], n=4)
    return float(1.57 * (high - low) / math.sqrt(len(steps)))


def main(pairs: int) -> None:
    """Count, and print one line."""
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(8)])
    batch, queue = torch.randn(32, 64), RunQueue()
    proven, before, busy = 0, 0, []
    passed(model, batch, queue)
    for _ in range(pairs):
        one, other = passed(model, batch, queue), passed(model, batch, queue)
        found = Steps(quiet=one, anomaly_off=other).saved_with_anomaly_off()
        assert found is not None
        proven += not found.low <= 0.0 <= found.high
        apart = abs(median(step.us for step in one) - median(step.us for step in other))
        before += apart > math.hypot(notch(one), notch(other))
        busy.append(queued_share((*one, *other)))
    shares = f"median {median(busy):.0%}, most {max(busy):.0%}"
    print(
        f"{pairs} pairs of passes: {proven} proven; by raw times and notches {before}. Waiting for "
        f"a processor: {shares}."
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
