"""SYNC005: results whose size depends on values: ``nonzero``, boolean masks, ``unique``, ``bincount``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Reads
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class DataDependentShape(Rule):
    """
    A result's size depends on values on the device.

    ## What it finds
    A line that makes, on most steps, a tensor whose size is known only when the values are: ``nonzero``, one-argument
    ``torch.where``, ``x[mask]``, ``x[mask] = tensor``, ``masked_select``, ``unique``, ``bincount``, and
    ``repeat_interleave`` with a tensor of repeats and no ``output_size``. Only for values computed from the model or
    moved to its device. ``x[mask] = 0.0`` is not one: it writes in place.

    ## Why it costs
    The result cannot be allocated before its size is on the host, so the host waits until the device has computed it
    and all work queued before it. Sizes that vary also make the allocator's cache fit worse.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(8, 1)
    x = torch.linspace(-1, 1, 64).view(8, 8)

    def step():
        error = (model(x) - x.mean(1, keepdim=True)).square()
        error[error > error.mean()].mean().backward()
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Linear(8, 1)
    x = torch.linspace(-1, 1, 64).view(8, 8)

    def step():
        error = (model(x) - x.mean(1, keepdim=True)).square()
        hard = (error > error.mean()).to(error.dtype)
        ((error * hard).sum() / hard.sum()).backward()
    ```

    ## When to ignore
    The selection is small and saves far more work than one wait costs (sparse experts, hard example mining).

    ## Sources
    PyTorch performance tuning guide, "Avoid unnecessary CPU-GPU synchronization", lists ``nonzero``. The thresholds are ours.
    """

    code = "SYNC005"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.5, "Share of the loud steps from which it is a warning.")
    rare: float = knob(0.1, "Share of the loud steps below which it is not reported.")
    interval: int = knob(10, "At a constant distance of this many steps or more it is rate-limited and not reported.")
    enough: int = knob(10, "With fewer loud steps only a line that does it on every step is reported.")

    def detect(self, reads: Reads) -> Iterator[Finding]:
        for place in reads.places("shape"):
            weight = place.rhythm.weight(usual=self.share, rare=self.rare, interval=self.interval, enough=self.enough)
            if weight is None:
                continue
            yield Finding(
                place.site,
                f"the size of `{place.text}` depends on values{place.through}: it {place.waits} on {place.rhythm}",
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
            "Keep the size fixed: multiply by the mask, use torch.where or masked_fill, give output_size or minlength, "
            "or work on the indices that topk returns."
        )
