"""Data parallel training: how often gradients were averaged for a step, and repeated epochs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from statistics import mean
from typing import ClassVar

from auditor.evidence.recorded.steps import Steps, device_peak
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.model import sections as model
from auditor.model.sections import Exchange
from auditor.recordings.folder import Recording
from auditor.recordings.schema.data import BatchRow, LoaderRow
from auditor.recordings.schema.dist import (
    BatchDigestRow,
    CommunicationRow,
    DataParallelRow,
    GradientSyncRow,
    RankMemoryRow,
    SamplerEpochRow,
)
from auditor.recordings.schema.run import StepRow
from auditor.rule import NotLooked


@dataclass(frozen=True)
class DataParallelModule:
    """A module in ``DistributedDataParallel``, and the optimizer steps of the instrumented pass on
    its parameters. ``nbytes``: of its gradients.
    """

    what: str
    ranks: int
    nbytes: int
    averaged: tuple[int, ...] = ()
    """For each step of the optimizer the backward passes that averaged its gradients."""
    at: Site | None = None
    """Where most of the last backward passes were called."""
    apart: tuple[Apart, ...] = ()
    """Steps of the optimizer on gradients that are not averaged."""
    stepped: int = 0
    """Steps of the optimizer, averaged or not."""
    bypassed: tuple[Site, ...] = ()
    """Steps on gradients of what was called past the wrapper: where that was."""


@dataclass(frozen=True)
class Apart:
    """A step of the optimizer on gradients of one rank alone: where the last backward before it was
    called, where ``no_sync`` was, and how many backward passes before averaged.
    """

    backward_at: Site
    entered_at: Site | None
    averaged: int


@dataclass(frozen=True)
class DataParallel(Table):
    """The modules that are trained data parallel, in the order in which they were made."""

    parts: ClassVar[tuple[str, ...]] = ("data_parallel", "gradient_syncs")

    each: tuple[DataParallelModule, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> DataParallel:
        """From the instrumented pass."""
        wrapped = rows_of(evidence, DataParallelRow)
        if not wrapped:
            raise NotLooked("no module in a DistributedDataParallel was trained")
        steps = rows_of(evidence, GradientSyncRow)
        return cls(
            tuple(
                _module(evidence, row, [each for each in steps if each.number == row.number])
                for row in sorted(wrapped, key=lambda row: row.number)
            )
        )


def _module(
    evidence: Evidence, row: DataParallelRow, steps: list[GradientSyncRow]
) -> DataParallelModule:
    site = evidence.recording.site
    averaged = [each for each in steps if each.n]
    places = Counter(each.at for each in averaged).most_common(1)
    return DataParallelModule(
        row.what,
        row.ranks,
        row.bytes,
        tuple(each.n for each in averaged),
        site(places[0][0]) if places else None,
        tuple(
            Apart(
                site(each.local_at),
                None if each.entered_at is None else site(each.entered_at),
                each.n,
            )
            for each in steps
            if each.local and each.local_at is not None
        ),
        len(steps),
        tuple(site(each.at) for each in steps if each.bypassed and not (each.n or each.local)),
    )


@dataclass(frozen=True)
class SameOrder:
    """A sampler that began ``epochs`` epochs in one pass, all of them with the number ``epoch``;
    ``site`` is where the loader is iterated, ``stack`` the lines that led there, outermost first.
    ``share``: of the pass's steps that took batches of that loader.
    """

    site: Site | None
    replicas: int
    epoch: int
    epochs: int
    share: float
    stack: tuple[Site, ...] = ()


@dataclass(frozen=True)
class SamplerEpochs(Table):
    """Samplers that drew an order more than once, those with the most epochs first."""

    parts: ClassVar[tuple[str, ...]] = ("sampler_epochs", "loaders", "batches", "steps")

    each: tuple[SameOrder, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> SamplerEpochs:
        """From the pass in which a sampler drew the same order most often."""
        epochs: dict[tuple[int, str], list[SamplerEpochRow]] = {}
        begun = rows_of(evidence, SamplerEpochRow)
        if not begun:
            raise NotLooked("no DistributedSampler that shuffles began an epoch")
        for row in begun:
            epochs.setdefault((row.number, row.pass_name), []).append(row)
        found: dict[int, SameOrder] = {}
        for (number, pass_name), rows in epochs.items():
            one = _same(evidence, pass_name, rows)
            if one is not None and one.epochs > (found[number].epochs if number in found else 1):
                found[number] = one
        return cls(tuple(sorted(found.values(), key=lambda each: -each.epochs)))


def _same(evidence: Evidence, pass_name: str, rows: list[SamplerEpochRow]) -> SameOrder | None:
    if len({row.epoch for row in rows}) > 1:
        return None
    places = Counter(row.at for row in rows if row.at is not None).most_common(1)
    if not places:
        return None
    at, last = places[0][0], rows[-1]
    site = evidence.recording.site
    return SameOrder(
        site(at),
        last.replicas,
        last.epoch,
        len(rows),
        _share(evidence, pass_name, {row.loader_at for row in rows}),
        tuple(map(site, last.stack)),
    )


def _share(evidence: Evidence, pass_name: str, places: set[int | None]) -> float:
    """Of the pass's steps, those that took batches of a loader made on one of these lines."""
    table = evidence.get(Steps)
    steps = len(table.loud if pass_name == "loud" else table.quiet)
    loaders = {
        row.loader
        for row in rows_of(evidence, LoaderRow)
        if row.made_at is not None and row.made_at in places
    }
    fed = {
        row.step
        for row in rows_of(evidence, BatchRow)
        if row.pass_name == pass_name and row.loader in loaders and row.n
    }
    return len(fed) / steps if steps else 0.0


@dataclass(frozen=True)
class SameBatches:
    """A loader that gave several ranks the same batches in ``steps`` of ``of`` steps; ``ranks`` are
    those that were compared, ``different`` how many batches of this rank differ from one another.
    ``fed``: share of the pass's steps that took batches of it.
    """

    made_at: Site | None
    ranks: int
    steps: int
    of: int
    different: int
    fed: float = 0.0


@dataclass(frozen=True)
class RankBatches(Table):
    """Loaders of this rank beside those of the other ranks, made on the same line."""

    parts: ClassVar[tuple[str, ...]] = ("batch_digests", "steps")

    each: tuple[SameBatches, ...] = ()
    world_size: int = 0
    """Of the process group in which the batches were given."""

    @classmethod
    def build(cls, evidence: Evidence) -> RankBatches:
        """From the instrumented pass of each rank."""
        members = getattr(evidence.recording, MEMBERS, ())
        own = rows_of(evidence, BatchDigestRow)
        if len(members) < 2:
            raise NotLooked(ONE_PROCESS)
        ranks = {row.rank for row in own}
        others = [found for each in members if (found := _digests(each, ranks))]
        world = max((row.ranks for row in own), default=0)
        played = evidence.recording.manifest.get("played")
        if len(others) + 1 < (len(played) if played else world):
            return cls(world_size=world)
        places = dict.fromkeys(row.loader_at for row in own if row.loader_at is not None)
        loaders = (_batches(evidence, at, own, others) for at in places)
        return cls(tuple(each for each in loaders if each is not None), world)


ONE_PROCESS = "one process was audited, not several ranks"

MEMBERS = "members"
"""Attribute of the recordings of one run's processes (``RankedRecording``), one per rank."""

Place = tuple[str, int]
"""File and line: ranks number their sites each for itself."""


def _digests(recording: Recording, but: set[int]) -> dict[Place, dict[int, str]]:
    """Another rank's batches by step for each loader's line; empty of the ranks ``but``."""
    found: dict[Place, dict[int, str]] = {}
    for row in recording.rows(BatchDigestRow):
        if row.rank in but or row.loader_at is None:
            continue
        site = recording.site(row.loader_at)
        found.setdefault((site.file, site.line), {})[row.step] = row.digest
    return found


def _batches(
    evidence: Evidence,
    loader_at: int,
    own: list[BatchDigestRow],
    others: list[dict[Place, dict[int, str]]],
) -> SameBatches | None:
    made_at = evidence.recording.site(loader_at)
    place = made_at.file, made_at.line
    if any(place not in each for each in others):
        return None
    rows = [row for row in own if row.loader_at == loader_at]
    same = [
        row.digest
        for row in rows
        if row.digest and all(each[place].get(row.step) == row.digest for each in others)
    ]
    return SameBatches(
        made_at,
        len(others) + 1,
        len(same),
        len(rows),
        len(set(same)),
        len(rows) / max(1, len(evidence.get(Steps).loud)),
    )


# -- communication ---------------------------------------------------------------------------------
# Every collective of a step by line, whoever issued it, and what of a rank's memory is for what.


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
        tuple(_rank_share(each, found[each.rank]) for each in members),
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


def _rank_share(recording: Recording, own: Communication) -> model.RankShare:
    held = recording.rows(RankMemoryRow)
    last = held[-1] if held else None
    return model.RankShare(
        recording.rank,
        device_peak(recording.rows(StepRow)),
        None if last is None else last.parameters,
        None if last is None else last.gradients,
        None if last is None else last.optimizer,
        *(
            sum(getattr(each, of) for each in own.each)
            for of in ("per_step", "bytes_in", "bytes_out")
        ),
    )
