"""CFG003: cuDNN changes the layout of tensors around convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.trace.patterns import Structure
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class LayoutTransposedAroundConvolutions(Rule):
    """
    Tensors are transposed to channels-last and back around each convolution.

    ## What it finds
    ``nchwToNhwc``, ``nhwcToNchw`` (cuDNN) and ``batched_transpose`` (MIOpen) kernels that take a
    noticeable share of the kernel time.

    ## Why it costs
    Tensor cores convolve in the channels-last layout. For tensors in the default layout the library
    transposes input, weight and gradient before, and the result after each convolution: memory
    traffic that computes nothing.

    ## Example
    ```python
    # needs: cuda
    import torch

    model = torch.nn.Conv2d(256, 256, 3, padding=1, device="cuda", dtype=torch.bfloat16)
    x = torch.ones(64, 256, 56, 56, device="cuda", dtype=torch.bfloat16)

    def step():
        model(x).mean().backward()
    ```

    ## Use instead
    ```python
    # needs: cuda
    import torch

    model = torch.nn.Conv2d(256, 256, 3, padding=1, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    x = torch.ones(64, 256, 56, 56, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)

    def step():
        model(x).mean().backward()
    ```

    ## When to ignore
    The model has operators without a channels-last implementation, which would transpose in their
    turn.

    ## Sources
    PyTorch's tutorial on the channels-last memory format. No peer has this rule; the share is ours.
    """

    code = "CFG003"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.05, "Share of kernel time in such kernels from which it is reported.")

    def detect(self, structure: Structure) -> Iterator[Finding]:
        us = structure.transpose_us
        if not us or us < self.share * structure.kernel_us:
            return
        yield Finding(
            None,
            "changing layouts around convolutions takes "
            f"{amounts.percent(us / structure.kernel_us)} of the kernel time: "
            "model and input are not in the channels-last format",
            steps=structure.steps if structure.marked else 0,
            lost_us_per_step=us / structure.steps if structure.marked else None,
            basis="estimated" if structure.marked else "none",
            seen_on="trace",
            severity=None if structure.marked else Severity.NOTE,
            facts=tuple(
                (name[:90], f"{amounts.percent(time / structure.kernel_us)} of kernel time")
                for name, time in structure.transposes[:4]
            ),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Convert once: model.to(memory_format=torch.channels_last), and each input batch "
            "likewise."
        )
