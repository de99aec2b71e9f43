"""SYNC003: ``.cpu()``, ``.numpy()``, ``.tolist()``, ``.to("cpu")``, ``print(t)`` in the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Reads
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class CopyToHostEveryStep(Rule):
    """
    A tensor is copied to the host in the step.

    ## What it finds
    A line that copies a tensor computed from the model, or moved to its device, to the host on most steps: ``.cpu()``,
    ``.to("cpu")``, ``.numpy()``, ``.tolist()``, or prints it. ``t.cpu().item()`` is one copy: its ``.item()`` reads a host
    tensor. A line that does several things is reported once. Left out: tensors that never leave the host, and copies
    inside a data loader.

    ## Why it costs
    A copy into ordinary (pageable) host memory returns when the data has arrived: the host waits for all work queued
    before it on the device, then for the transfer. Printing a tensor copies it and runs further operations to format it.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(8, 1)
    outputs = []

    def step():
        out = model(torch.ones(4, 8))
        out.mean().backward()
        outputs.append(out.detach().cpu())
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Linear(8, 1)
    outputs = torch.zeros(64, 4, 1)
    count = 0

    def step():
        global count
        out = model(torch.ones(4, 8))
        out.mean().backward()
        outputs[count % 64].copy_(out.detach())
        count += 1
    ```
    Copy the buffer to the host when it is full. Where the copy must happen on each step, copy into pinned memory with
    ``non_blocking=True`` and use the data one step later.

    ## When to ignore
    The host needs the data at once: an environment in reinforcement learning, a metric that exists only in NumPy.

    ## Sources
    Copies between device and pageable memory synchronise with the host: CUDA runtime API, "API synchronization behavior".
    The thresholds are ours.
    """

    code = "SYNC003"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.5, "Share of the loud steps from which a copy is a warning.")
    rare: float = knob(0.1, "Share of the loud steps below which a copy is not reported.")
    interval: int = knob(10, "A copy at a constant distance of this many steps or more is rate-limited and not reported.")
    enough: int = knob(10, "With fewer loud steps only a copy on every step is reported.")

    def detect(self, reads: Reads) -> Iterator[Finding]:
        for place in reads.places("transfer"):
            weight = place.rhythm.weight(usual=self.share, rare=self.rare, interval=self.interval, enough=self.enough)
            if weight is None:
                continue
            yield Finding(
                place.site,
                f"`{place.text}` copies a tensor to the host{place.through}: it {place.waits} on {place.rhythm}",
                steps=len(place.rhythm.seen),
                per_step=place.per_step,
                lost_us_per_step=place.held_us,
                basis="none" if place.held_us is None else "estimated",
                seen_on=reads.device,
                severity=Severity.NOTE if weight == "sometimes" or place.library else None,
                facts=place.facts,
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Collect on the device and copy once every so many steps; or copy into pinned memory with non_blocking=True "
            "and read it a step later."
        )
