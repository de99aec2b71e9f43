"""Evaluations of modules that are trained, and are in train mode meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import TrainModeForwardRow
from .scoring import calls_of, function_of, scored


@dataclass(frozen=True)
class Evaluated:
    """``site`` called a ``module`` with gradients off and in train mode, and compares what it
    returns with its target; ``times`` beside ``steps`` of the optimizer that trains it.

    ``parts``: what of it acts otherwise in eval mode, and how many of each class. ``named``: a name
    at the line says that it evaluates.
    """

    site: Site
    module: str
    parts: Mapping[str, int]
    times: int
    steps: int
    named: bool


@dataclass(frozen=True)
class TrainModeForwards(Table):
    """All lines that did so; empty where none did."""

    parts: ClassVar[tuple[str, ...]] = ("train_mode_forwards",)

    evaluated: tuple[Evaluated, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> TrainModeForwards:
        """From all passes up to the diagnostic one."""
        source = evidence.get(Source)
        rows = rows_of(evidence, TrainModeForwardRow)
        return cls(tuple(each for row in rows for each in _evaluated(evidence, source, row)))


def _evaluated(evidence: Evidence, source: Source, row: TrainModeForwardRow) -> Iterator[Evaluated]:
    recording = evidence.recording
    at, within = recording.site(row.at), recording.site(row.within)
    name = function_of(source, at)
    same = at.file == within.file and name == function_of(source, within)
    own = same or calls_of(source, name) == 1
    site = at if own else within
    found = scored(source, site, whole=own and not same)
    if found is not None:
        yield Evaluated(site, row.module, row.parts, row.times, row.steps, found.named)
