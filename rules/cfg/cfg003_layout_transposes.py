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
    """Tensors are transposed to channels-last and back around each convolution."""

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
