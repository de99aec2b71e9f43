"""Whether cuDNN has to try its algorithms again and again: as a trace shows it, or by the sizes of
a rehearsal's convolutions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.evidence.trace.patterns import Structure
from auditor.model import Site

from .rows import ConvSizesRow


@dataclass(frozen=True)
class NewSizes:
    """The steps of a rehearsal on which convolutions met ``sizes`` that they had not met before, in
    all; ``site`` and ``shape`` are those of the last one. ``benchmark``: cuDNN's benchmark mode was
    on in each of them.
    """

    pattern: StepPattern
    sizes: int = 0
    site: Site | None = None
    shape: tuple[int, ...] = ()
    benchmark: bool = False

    @property
    def later(self) -> StepPattern:
        """Of the second half of the steps."""
        half = self.pattern.of // 2
        seen = {step - half for step in self.pattern.seen if step >= half}
        return step_pattern(seen, self.pattern.of - half)


@dataclass(frozen=True)
class Autotuning(Table):
    """What a trace shows (``structure``), or what a rehearsal says (``new``)."""

    parts: ClassVar[tuple[str, ...]] = ("conv_sizes",)

    structure: Structure | None = None
    new: NewSizes | None = None

    @classmethod
    def without_parts(cls, evidence: Evidence) -> Autotuning:
        """Only a rehearsal tells sizes; another run has a trace."""
        return cls(structure=evidence.get(Structure))

    @classmethod
    def build(cls, evidence: Evidence) -> Autotuning:
        """From the loud pass of a rehearsal."""
        rows = [row for row in rows_of(evidence, ConvSizesRow) if row.new]
        steps = len(evidence.get(Steps).loud)
        pattern = step_pattern({row.step for row in rows}, steps)
        if not rows:
            return cls(new=NewSizes(pattern))
        last = rows[-1]
        return cls(
            new=NewSizes(
                pattern,
                sum(row.new for row in rows),
                None if last.at is None else evidence.recording.site(last.at),
                tuple(last.shape),
                all(row.benchmark for row in rows),
            )
        )
