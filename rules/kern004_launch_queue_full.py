"""KERN004: the launch queue is full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.trace.idle import DeviceIdle
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class LaunchQueueFull(Rule):
    """
    The host ran so far ahead that the launch queue is full.

    ## What it finds
    More than a thousand kernels waiting in the queue, and launches that were held until one of them
    had run.

    ## Why it costs
    Nothing on the device: it is never out of work, so this is a note. But a held launch looks like
    a slow operator in a trace of the host, and whatever the host would do meanwhile (load, log,
    answer) is late by as much.

    ## Example
    ```python
    # needs: cuda
    import torch

    x = torch.ones(2048, 2048, device="cuda")

    def step():
        y = x
        for _ in range(3000):
            y = y @ x
    ```

    ## Use instead
    ```python
    # needs: cuda
    import torch

    x = torch.ones(2048, 2048, device="cuda")

    def step():
        y = x
        for _ in range(30):
            y = y @ x
    ```

    ## When to ignore
    Almost always: look elsewhere for time. It says that host times of this trace do not show what
    operators cost.

    ## Sources
    HTA's ``get_queue_length_summary`` takes 1024 as the queue's length. A free launch takes 5 us;
    50 us is ours.
    """

    code = "KERN004"
    severity = Severity.NOTE
    since = "0.1"

    depth: int = knob(
        1000, "Kernels in the queue from which it counts as full (the driver's limit is 1024)."
    )
    share: float = knob(0.05, "Share of the steps' time that launches must have been held.")

    def detect(self, idle: DeviceIdle) -> Iterator[Finding]:
        if idle.deepest < self.depth or idle.full_us < self.share * idle.window_us:
            return
        yield Finding(
            None,
            f"up to {idle.deepest:,} kernels wait in the queue: launches were held for "
            f"{amounts.duration(idle.full_us / idle.steps)} "
            "in each step, and the device was never out of work",
            steps=idle.steps if idle.marked else 0,
            seen_on="trace",
            facts=idle.facts,
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Nothing to repair on the device. Do host work (logging, preparing data) in another "
            "thread if it comes late."
        )
