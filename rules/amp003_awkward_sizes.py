"""AMP003: 16-bit matrix products whose sizes are no multiples of 8."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.trace.precision import Precision
from auditor.model import Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule, knob


@dataclass(frozen=True)
class AwkwardProductSizes(Rule):
    """
    16-bit matrix products have sizes that are no multiples of 8.

    ## What it finds
    fp16 and bf16 products (``mm``, ``addmm``, ``bmm``, ``baddbmm``) in a trace with
    ``record_shapes=True`` whose inner or last size is no multiple of 8 and which take a noticeable
    share of the kernel time: a vocabulary of 50257, a sequence of 3137 tokens.

    ## Why it costs
    Tensor cores load 16 bytes at a time: rows that do not start at a multiple of that take slower
    kernels, often with a copy before.

    ## Example
    ```python
    # needs: cuda
    import torch

    head = torch.nn.Linear(1024, 50257, bias=False, device="cuda", dtype=torch.bfloat16)
    x = torch.ones(2048, 1024, device="cuda", dtype=torch.bfloat16)

    def step():
        head(x).mean().backward()
    ```

    ## Use instead
    ```python
    # needs: cuda
    import torch

    head = torch.nn.Linear(1024, 50304, bias=False, device="cuda", dtype=torch.bfloat16)  # padded to a multiple of 64
    x = torch.ones(2048, 1024, device="cuda", dtype=torch.bfloat16)

    def step():
        head(x).mean().backward()
    ```

    ## When to ignore
    The size is the data's own and cannot be padded, or a measurement with the padded size showed no
    gain.

    ## Sources
    NVIDIA's guide to matrix products; ``torch.profiler._pattern_matcher`` has the same rule. DLProf
    dropped it in 20.10, because later libraries use tensor cores for any size, though at a lower
    rate: hence a note. The share is ours.
    """

    code = "AMP003"
    severity = Severity.NOTE
    since = "0.1"

    share: float = knob(0.1, "Share of kernel time in such products from which it is reported.")

    def detect(self, precision: Precision) -> Iterator[Finding]:
        if not precision.shapes:
            raise NotLooked("the trace holds no shapes: record it with record_shapes=True")
        us = sum(time for _, time in precision.awkward)
        if us < self.share * precision.kernel_us:
            return
        sizes = precision.awkward
        yield Finding(
            None,
            "16-bit products whose sizes are no multiples of 8 take "
            f"{amounts.percent(us / precision.kernel_us)} of the kernel time: "
            f"most of it with k x n = {sizes[0][0]}",
            steps=precision.steps if precision.marked else 0,
            seen_on="trace",
            facts=tuple(
                (f"k x n = {size}", f"{amounts.percent(time / precision.kernel_us)} of kernel time")
                for size, time in sizes[:5]
            ),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Pad the size (vocabulary, classes, sequence) up to a multiple of 8, better 64, and "
            "mask what was added."
        )
