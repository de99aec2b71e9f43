"""AMP007: converting between types takes a large share of the device's time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.trace.precision import HALF, Precision
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class CastThrash(Rule):
    """
    Converting tensors between types takes a large share of the device's time.

    ## What it finds
    A trace with 16-bit products in which the kernels of ``aten::_to_copy`` (what autocast,
    ``.half()`` and ``.float()`` run) take a noticeable share of the kernel time.

    ## Why it costs
    A conversion reads and writes the whole tensor and computes nothing. Autocast converts each fp32
    weight again in each forward pass, and each activation where operators that want fp32 and 16
    bits take turns.

    ## Example
    ```python
    # needs: cuda
    import torch

    model = torch.nn.Linear(2048, 2048, device="cuda")
    x = torch.ones(64, 2048, device="cuda")

    def step():
        for _ in range(8):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                model(x).float().mean().backward()
    ```

    ## Use instead
    ```python
    # needs: cuda
    import torch

    model = torch.nn.Linear(2048, 2048, device="cuda", dtype=torch.bfloat16)
    x = torch.ones(4096, 2048, device="cuda", dtype=torch.bfloat16)

    def step():
        model(x).mean().backward()
    ```
    For inference convert the model once with ``model.half()`` or ``model.bfloat16()``. In training
    enter autocast once around the whole forward pass, so that its cache of converted weights lives
    as long, or keep the weights in bf16.

    ## When to ignore
    The model is tiny and the batch small: with larger products the share falls by itself.

    ## Sources
    No peer has this rule; the share is ours. In the traces that we have, models under autocast
    spend 3 to 5 % on it.
    """

    code = "AMP007"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.1, "Share of kernel time in conversions from which it is reported.")
    least: int = knob(10, "Conversions in the trace below which nothing is reported.")

    def detect(self, precision: Precision) -> Iterator[Finding]:
        us = precision.cast_us
        if (
            us < self.share * precision.kernel_us
            or precision.casts < self.least
            or precision.share(HALF, "8-bit") <= 0
        ):
            return
        yield Finding(
            None,
            f"converting between types takes {amounts.percent(us / precision.kernel_us)} of the "
            "kernel time, "
            f"{amounts.digits(precision.casts / precision.steps)} conversions "
            f"{'per step' if precision.marked else 'in the trace'}",
            steps=precision.steps if precision.marked else 0,
            per_step=precision.casts / precision.steps if precision.marked else 0.0,
            lost_us_per_step=us / precision.steps if precision.marked else None,
            basis="estimated" if precision.marked else "none",
            seen_on="trace",
            severity=None if precision.marked else Severity.NOTE,
            facts=precision.facts,
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Enter autocast once around the whole forward pass; for inference convert the model "
            "once (model.bfloat16()); "
            "keep tensors that only 16-bit operators use in 16 bits."
        )
