"""Batches of an epoch on each rank, for loaders that all ranks make on the same line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.recorded.data_parallel import MEMBERS, ONE_PROCESS
from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.recordings.folder import Recording
from auditor.recordings.schema import LoaderRow
from auditor.rule import NotLooked

Place = tuple[str, int]


@dataclass(frozen=True)
class LoaderLength:
    """A loader, where this rank makes it and goes over it, and how many batches an epoch of it has
    on each rank (``(rank, batches)``, by rank).
    """

    made_at: Site
    at: Site
    batches: tuple[tuple[int, int], ...]

    @property
    def uneven(self) -> bool:
        """Whether the ranks differ."""
        return len({n for _, n in self.batches}) > 1


@dataclass(frozen=True)
class LoaderLengths(Table):
    """Those loaders that every recorded rank made, with a length on each."""

    parts: ClassVar[tuple[str, ...]] = ("loaders",)

    each: tuple[LoaderLength, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> LoaderLengths:
        """From the loaders of each rank."""
        members: tuple[Recording, ...] = getattr(evidence.recording, MEMBERS, ())
        if len(members) < 2:
            raise NotLooked(ONE_PROCESS)
        own = _loaders(evidence.recording)
        ranks = [
            (each.rank, _loaders(each)) for each in sorted(members, key=lambda each: each.rank)
        ]
        found = []
        for place, (made_at, at, _) in own.items():
            lengths = [(rank, there[place][2]) for rank, there in ranks if place in there]
            if len(lengths) == len(ranks) and at is not None:
                found.append(LoaderLength(made_at, at, tuple(lengths)))
        return cls(tuple(found))


def _loaders(recording: Recording) -> dict[Place, tuple[Site, Site | None, int]]:
    """By the line that makes them; lines whose loaders differ in length or are read in several
    places are left out.
    """
    found: dict[Place, tuple[Site, Site | None, int]] = {}
    differ = set()
    for row in recording.typed_rows(LoaderRow.part):
        if not isinstance(row, LoaderRow) or row.made_at is None:
            continue
        made_at = recording.site(row.made_at)
        place = made_at.file, made_at.line
        loader = made_at, None if row.at is None else recording.site(row.at), row.length or 0
        if row.length is None or found.setdefault(place, loader) != loader:
            differ.add(place)
    return {place: loader for place, loader in found.items() if place not in differ}
