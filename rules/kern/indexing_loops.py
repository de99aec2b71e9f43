"""Python loops that went over a tensor piece by piece, over masks of it, or over parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from auditor.evidence.recorded.loop_times import LoopTimes
from auditor.evidence.source.files import Source
from auditor.evidence.source.loops import loop_around
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .module_loops import ModuleLoops
from .rows import ModuleLoopRow, PiecewiseRow

FUNCTIONS = ("torch/nn/functional.py", "torch/functional.py", "torch/_tensor.py")
"""Libraries below which an operator still belongs to the user's line: modules and optimizers have
loops of their own.
"""


@dataclass(frozen=True)
class IndexingLoop:
    """A line that one operator runs on, turn after turn, on ``steps`` watched steps.

    ``turns`` and ``operators`` (of all turns) in each step; ``share`` of all operators outside the
    backward; ``elements`` of a piece at most. ``head`` is the line of the ``for``, None where it is
    the same one or was not found. ``us`` of a step in it, None where it was not timed, or is that
    of a loop over a module.
    """

    site: Site
    op: str
    turns: float
    operators: float
    share: float
    elements: int
    steps: int = 1
    kind: str = "pieces"
    """What it is given in turn: ``pieces`` of a tensor, ``masks`` (values that one is compared
    with), ``parameters`` or ``groups`` of rows.
    """
    head: Site | None = None
    us: float | None = None


@dataclass(frozen=True)
class IndexingLoops(Table):
    """The loops of the pass ``numbers``, which watched ``steps`` steps."""

    parts: ClassVar[tuple[str, ...]] = ("piecewise",)

    steps: int = 0
    loops: tuple[IndexingLoop, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> IndexingLoops:
        """From what the pass left."""
        steps = sum(
            each["steps"]
            for each in evidence.recording.manifest.get("passes", ())
            if each["name"] == "numbers"
        )
        rows = [row for row in rows_of(evidence, PiecewiseRow) if _is_own(evidence, row)]
        by_line = groupby(sorted(rows, key=lambda row: row.at), key=lambda row: row.at)
        return cls(steps, tuple(_loop(evidence, list(here)) for _, here in by_line))

    def short(self, body: int, many: int, body_of_many: int) -> Iterator[IndexingLoop]:
        """Loops of so few operators a turn that are there on every step; those of ``many`` turns
        may have more.
        """
        return (
            each
            for each in self.loops
            if each.steps == self.steps
            and each.operators <= (body if each.turns < many else body_of_many) * each.turns
        )


def _is_own(evidence: Evidence, row: PiecewiseRow) -> bool:
    """The user's line has the loop: it calls the operator, or it cut the pieces for a module."""
    via = evidence.recording.site_row(row.at).via or ""
    return not via or via.startswith(FUNCTIONS) or row.cut is not None


def _loop(evidence: Evidence, rows: list[PiecewiseRow]) -> IndexingLoop:
    steps = len({row.step for row in rows})
    site, head = _place(evidence, rows[0])
    modules = evidence.get(ModuleLoops).loops if evidence.has(ModuleLoopRow.part) else ()
    theirs = any(each.us and _line(each.head) == _line(head or site) for each in modules)
    return IndexingLoop(
        site=site,
        op=rows[0].op,
        turns=sum(row.n for row in rows) / steps,
        operators=sum(row.operators for row in rows) / steps,
        share=sum(row.operators for row in rows) / max(1, sum(row.all for row in rows)),
        elements=max(row.elements for row in rows),
        steps=steps,
        kind=rows[0].kind,
        head=head,
        us=None if theirs else evidence.get(LoopTimes).us_of(rows[0].at, rows[0].cut),
    )


def _line(site: Site) -> tuple[str, int]:
    return site.file, site.line


def _place(evidence: Evidence, row: PiecewiseRow) -> tuple[Site, Site | None]:
    """The line in the loop, and the loop's own. Where the operator runs in a function that the loop
    calls, the line in the loop is the one that cuts the pieces.
    """
    source, recording = evidence.get(Source), evidence.recording
    sites = [recording.site(at) for at in (row.at, row.cut) if at is not None]
    for site in sites:
        line = loop_around(source, site)
        if line is not None:
            file = recording.site_row(row.at if site is sites[0] else row.cut or row.at).file
            head = recording.site_at(file, line, site.function) if line != site.line else None
            return site, head
    return sites[0], None
