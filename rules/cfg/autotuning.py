"""CFG001: cuDNN tunes itself again in each step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor import amounts
from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Rows, Table
from auditor.evidence.trace.patterns import Structure
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob

from ..lines import places_of
from .rows import ConvSizesRow


@dataclass(frozen=True)
class Autotuning(Table):
    """What a trace shows (``structure``); or of a rehearsal the steps on which convolutions met
    ``sizes`` that they had not met before, in all. ``site`` and ``shape`` are those of the last one.
    ``benchmark``: cuDNN's benchmark mode was on in each of them.
    """

    parts: ClassVar[tuple[str, ...]] = ("conv_sizes",)

    structure: Structure | None = None
    pattern: StepPattern | None = None
    sizes: int = 0
    site: Site | None = None
    shape: tuple[int, ...] = ()
    benchmark: bool = False

    @classmethod
    def without_parts(cls, evidence: Evidence) -> Autotuning:
        """Only a rehearsal tells sizes; another run has a trace."""
        return cls(structure=evidence.get(Structure))

    @classmethod
    def build(cls, evidence: Evidence) -> Autotuning:
        rows = [row for row in evidence.get(Rows[ConvSizesRow]) if row.new]
        pattern = step_pattern({row.step for row in rows}, len(evidence.get(Steps).loud))
        if not rows:
            return cls(pattern=pattern)
        sizes, shape = sum(row.new for row in rows), tuple(rows[-1].shape)
        benchmark = all(row.benchmark for row in rows)
        return cls(None, pattern, sizes, rows[-1].site, shape, benchmark)


@dataclass(frozen=True)
class AutotuningEveryStep(Rule):
    """cuDNN's benchmark mode tries its algorithms again and again."""

    code = "CFG001"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    share: float = knob(0.5, "Report if at least this share of a trace's steps tries algorithms.")
    renewed: float = knob(
        0.75, "Report if at least this share of all steps, and of the later half, has new sizes."
    )

    def detect(self, autotuning: Autotuning, source: Source) -> Iterator[Finding]:
        if autotuning.structure is not None:
            yield from self.in_trace(autotuning.structure, source)
        seen, site = autotuning.pattern, autotuning.site
        if seen is None or not autotuning.benchmark:
            return
        half = seen.of // 2
        later = step_pattern({step - half for step in seen.seen if step >= half}, seen.of - half)
        if seen.usual(self.renewed) and later.usual(self.renewed):
            set_at = source.only_flag("cudnn.benchmark", value=True)
            shape = f", the last {list(autotuning.shape)}" if autotuning.shape else ""
            at = f" at {site}" if site is not None else ""
            yield Finding(
                set_at or site,
                f"cudnn.benchmark is on, and on {seen} convolutions meet new sizes "
                f"({autotuning.sizes} in all{shape}{at}): cuDNN tries its algorithms for each",
                steps=len(seen.seen),
                per_step=autotuning.sizes / max(1, seen.of),
                places=places_of(set_at, site),
                remedy=_remedy(set_at),
            )

    def in_trace(self, structure: Structure, source: Source) -> Iterator[Finding]:
        tuning, often = structure.tuning, structure.tuned
        if (
            tuning is None
            or not structure.marked
            or not often.usual(self.share)
            or max(often.seen) < structure.steps // 2
        ):
            return
        yield Finding(
            None,
            f"cuDNN tries its algorithms on {often}: "
            f"{amounts.digits(tuning.times / structure.steps)} waits per step, "
            f"{amounts.duration(tuning.us / structure.steps)}",
            steps=len(often.seen),
            per_step=tuning.times / structure.steps,
            lost_us_per_step=tuning.us / structure.steps,
            basis="estimated",
            seen_on="trace",
            remedy=_remedy(source.only_flag("cudnn.benchmark", value=True)),
        )


def _remedy(set_at: Site | None) -> Remedy:
    """``set_at`` is the only line that sets ``cudnn.benchmark = True``."""
    text = "Pad the inputs to a few fixed shapes, or set torch.backends.cudnn.benchmark = False."
    if set_at is None:
        return Remedy(text)
    reason = (
        "cuDNN then chooses algorithms by heuristics: they may be slower for shapes that "
        "repeat, and round differently"
    )
    edit = Edit(set_at, "set_constant", keyword="benchmark", value="False", reason=reason)
    return Remedy(text, (edit,))
