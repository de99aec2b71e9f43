"""Every collective of a step by line, whoever issued it, and what of a rank's memory is for what."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from statistics import mean
from typing import ClassVar

from auditor.evidence.recorded.data_parallel import MEMBERS, ONE_PROCESS
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.model import sections as model
from auditor.model.sections import Exchange
from auditor.recordings.folder import Recording
from auditor.recordings.schema.dist import CommunicationRow, RankMemoryRow
from auditor.recordings.schema.run import StepRow, known
from auditor.rule import NotLooked

Key = tuple[Site, str, str, int, str, Site | None]


@dataclass(frozen=True)
class Communication(Table):
    """Those with the most bytes first."""

    parts: ClassVar[tuple[str, ...]] = ("communication",)

    each: tuple[Exchange, ...] = ()
    steps: int = 0

    @classmethod
    def build(cls, evidence: Evidence) -> Communication:
        """From the steps that were watched."""
        rows = rows_of(evidence, CommunicationRow)
        if not rows and int(evidence.recording.manifest.get("world_size") or 1) < 2:
            raise NotLooked(ONE_PROCESS)
        return traffic_of(evidence.recording, rows)


def traffic_of(recording: Recording, rows: list[CommunicationRow]) -> Communication:
    """The rows of one rank, by line."""
    steps = sorted({(row.pass_name, row.step) for row in rows})
    by_key: dict[Key, list[CommunicationRow]] = {}
    for row in rows:
        waited = None if row.waited_at is None else recording.site(row.waited_at)
        key = (recording.site(row.at), row.what, row.group, row.ranks, row.dtype, waited)
        by_key.setdefault(key, []).append(row)
    found = [_traffic(key, own, steps) for key, own in by_key.items()]
    found.sort(key=lambda each: -(each.bytes_in + each.bytes_out))
    return Communication(tuple(found), len(steps))


def _traffic(key: Key, rows: list[CommunicationRow], steps: list[tuple[str, int]]) -> Exchange:
    site, what, group, ranks, dtype, waited = key
    counts, given, got = Counter[object](), Counter[object](), Counter[object]()
    for row in rows:
        step = (row.pass_name, row.step)
        counts[step] += 1
        given[step] += row.bytes_in
        got[step] += row.bytes_out
    between = [row.between for row in rows if row.between is not None]
    return Exchange(
        site,
        what,
        group,
        ranks,
        dtype,
        per_step=float(mean(counts[step] for step in steps)),
        bytes_in=float(mean(given[step] for step in steps)),
        bytes_out=float(mean(got[step] for step in steps)),
        waited=waited,
        between=min(between, default=None),
        of_ranks=(),
    )


def communication_of(evidence: Evidence) -> model.Communication | None:
    """What all recorded ranks hold and exchange; None for one process, or unwatched."""
    members: tuple[Recording, ...] = tuple(getattr(evidence.recording, MEMBERS, ()))
    manifest = evidence.recording.manifest
    found = {each.rank: traffic_of(each, each.rows(CommunicationRow)) for each in members}
    if not any(each.each for each in found.values()):
        return None
    return model.Communication(
        int(manifest.get("world_size") or 1),
        bool(manifest.get("played")),
        max(each.steps for each in found.values()),
        tuple(_share(each, found[each.rank]) for each in members),
        _exchanges(found),
    )


def _exchanges(found: dict[int, Communication]) -> tuple[Exchange, ...]:
    """Rows that are equal on several ranks as one."""
    ranks: dict[Exchange, list[int]] = {}
    for rank, own in found.items():
        for each in own.each:
            ranks.setdefault(each, []).append(rank)
    rows = (replace(each, of_ranks=tuple(of)) for each, of in ranks.items())
    return tuple(sorted(rows, key=lambda row: -(row.bytes_in + row.bytes_out)))


def _share(recording: Recording, own: Communication) -> model.RankShare:
    held = recording.rows(RankMemoryRow)
    peaks = [
        peak for row in recording.rows(StepRow) if (peak := known(row.peak_allocated)) is not None
    ]
    last = held[-1] if held else None
    return model.RankShare(
        recording.rank,
        max(peaks, default=None),
        None if last is None else last.parameters,
        None if last is None else last.gradients,
        None if last is None else last.optimizer,
        *(
            sum(getattr(each, of) for each in own.each)
            for of in ("per_step", "bytes_in", "bytes_out")
        ),
    )
