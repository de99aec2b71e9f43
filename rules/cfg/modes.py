"""CFG003, 9 and 10: layouts and modes of modules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.evaluations import evaluates
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.evidence.trace.patterns import Structure
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .rows import SwitchedRow, TrainModeForwardRow, by_class
from .scoring import evaluation


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


@dataclass(frozen=True)
class TrainedInEvalMode(Rule):
    """A model stays in eval mode after an evaluation, and is trained on in it."""

    code = "CFG009"
    severity = Severity.WARNING
    since = "0.1"

    fewest: int = knob(3, "Steps in eval mode before anything is reported.")

    def detect(
        self, switched: Rows[SwitchedRow], machine: Machine, source: Source
    ) -> Iterator[Finding]:
        for each in switched:
            if each.steps < self.fewest:
                continue
            if each.grads and not evaluates(source, each.site):
                continue
            yield Finding(
                each.site,
                f"{each.module} was put into eval mode here, after {each.before} steps in train "
                f"mode, and {each.steps} steps trained it on in eval mode, where its {by_class(each.parts)} "
                "act in another way",
                steps=each.steps,
                per_step=1.0,
                seen_on=machine.device,
                facts=tuple((name, str(n)) for name, n in each.parts.items()),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Call train() on it when the evaluation is over, or before the training goes on."
        )


@dataclass(frozen=True)
class EvaluatedInTrainMode(Rule):
    """An evaluation runs in train mode."""

    code = "CFG010"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.5,
        "Share of the optimizer's steps beside which it may run at most, where no name says that "
        "it evaluates.",
    )

    def detect(
        self, forwards: Rows[TrainModeForwardRow], machine: Machine, source: Source
    ) -> Iterator[Finding]:
        for each in forwards:
            found = evaluation(source, each.site, each.site_of(each.within))
            if found is None or (not found.named and each.times > self.share * each.steps):
                continue
            yield Finding(
                found.site,
                f"{each.module} is evaluated here in train mode: {by_class(each.parts)} act as in training",
                steps=each.times,
                seen_on=machine.device,
                facts=(
                    *((name, str(n)) for name, n in each.parts.items()),
                    ("optimizer steps so far", str(each.steps)),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy("Call eval() on it before the evaluation, and train() when it is over.")
