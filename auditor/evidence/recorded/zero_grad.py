"""How gradients are cleared between steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from auditor.evidence.recorded.steps import Steps
from auditor.evidence.recorded.timed_calls import CallingLine
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema import ZeroGradRow

FILLS = "zero_grad(set_to_none=False) fills every gradient with zeros"


@dataclass(frozen=True)
class ZeroGrad:
    """Calls of ``zero_grad`` at one place in one step; ``us`` is host time inside them (loud
    pass).
    """

    site: Site
    step: int
    set_to_none: bool = True
    n: int = 1
    us: float = 0.0
    owner: str = "Optimizer"
    """``Optimizer`` or ``Module``, whose ``zero_grad`` it was; ``Tensor`` for ``grad.zero_()`` of
    the program's own.
    """


class Zeroing(CallingLine[ZeroGrad]):
    """A line that fills gradients with zeros, in the loud pass."""

    @property
    def said(self) -> str:
        """What the line calls."""
        by_hand = any(call.owner == "Tensor" for call in self.calls)
        return (
            "zero_() fills gradients with zeros that the next backward adds to,"
            if by_hand
            else FILLS
        )


@dataclass(frozen=True)
class ZeroGrads(Table):
    """``zero_grad`` calls of the loud pass."""

    parts: ClassVar[tuple[str, ...]] = ("optimizer", "steps")

    steps: int = 0
    calls: tuple[ZeroGrad, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> ZeroGrads:
        """From the loud pass; a call that does not say counts as the default, None."""
        rows = (row for row in rows_of(evidence, ZeroGradRow) if row.pass_name == "loud")
        calls = (
            ZeroGrad(
                evidence.recording.site(row.at),
                row.step,
                row.set_to_none,
                row.n,
                row.us,
                row.owner,
            )
            for row in rows
        )
        return cls(len(evidence.get(Steps).loud), tuple(calls))

    def zeroing(self) -> Iterator[Zeroing]:
        """Lines that ask for zeros instead of None."""
        calls = sorted(
            (call for call in self.calls if not call.set_to_none and call.step < self.steps),
            key=_by_line,
        )
        for _, there in groupby(calls, key=_by_line):
            here = tuple(there)
            yield Zeroing(here[0].site, here, self.steps)


def _by_line(call: ZeroGrad) -> tuple[str, int]:
    return call.site.file, call.site.line
