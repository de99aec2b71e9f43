"""Many ranks as one job: each trace read alone, clocks aligned by collectives, and who kept whom
waiting.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from auditor.errors import AuditProblem
from auditor.model import Rank
from auditor.timeline.timeline import Timeline
from auditor.timeline.trace import Ints

POOL_BYTES = 16 << 20
"""Bytes of files from which on a process pool pays for its start (about 0.3 s a process)."""

MISSING = 1000
"""Ranks without a trace that are listed: a trace may say that its job has 2^63."""

_RANK = re.compile(r"(?:rank|worker|process|node)[-_.]?(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class RankFacts:
    """One rank's trace: its row of the report, and what sets its clock by the others'."""

    row: Rank
    """``rank`` is from ``distributedInfo``, else from the file's name, else None."""
    world_size: int | None
    communication_ns: int
    """Over the whole trace: the row has it for each step."""
    collectives: tuple[str, ...]
    """Kernel of each collective, in order of time."""
    collective_start: Ints
    """In ns on the rank's own clock."""
    collective_end: Ints


@dataclass(frozen=True)
class Unread:
    """A file of the folder that is no trace, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Fleet:
    """All ranks, in order of rank."""

    ranks: tuple[RankFacts, ...]
    world_size: int
    """As the traces say it, at least the number of ranks present."""
    missing: tuple[int, ...]
    """Ranks without a trace, the first :data:`MISSING` of them."""
    alignment: Alignment | None
    """None for a single rank, or ranks that share no collective."""
    unread: tuple[Unread, ...]
    warnings: tuple[str, ...]

    @property
    def slowest(self) -> RankFacts:
        """The rank with the longest median step."""
        return max(self.ranks, key=lambda one: one.row.step_us)

    @property
    def least_waiting(self) -> RankFacts | None:
        """The rank with the least time in collectives, if any: the others wait for it."""
        talking = [one for one in self.ranks if one.communication_ns]
        return min(talking, key=lambda one: one.communication_ns) if talking else None


def rank_facts(path: Path | str) -> RankFacts | Unread:
    """Facts of one rank's file. Never raises on what a file may hold."""
    try:
        line = Timeline.of(path)
    except AuditProblem as problem:
        return Unread(str(path), problem.message)
    trace, steps, use = line.trace, line.steps, line.devices[0] if line.devices else None
    talk = next((one for one in line.communication if use and one.device == use.device), None)
    rows = talk.rows if talk else np.empty(0, np.int64)
    memory = [one.peak_allocated for one in line.memory if one.device_type != 0]
    peak = max(memory, default=-1)
    inside = line.waits.step >= 0
    each = 1e3 * max(1, steps.count)
    return RankFacts(
        Rank(
            rank=trace.info.rank if trace.info.rank is not None else _rank_in(Path(path).name),
            file=str(path),
            host=trace.info.host,
            device=use.name if use else "",
            steps=steps.count,
            step_us=int(np.median(steps.end - steps.start)) / 1e3 if steps.count else 0.0,
            busy_us=use.busy.length / each if use else 0.0,
            compute_us=(talk.computing if talk else use.busy).length / each if use else 0.0,
            communication_us=talk.busy.length / each if talk else 0.0,
            exposed_us=talk.exposed.length / each if talk else 0.0,
            loader_us=line.loader.in_steps_ns / each if line.loader else 0.0,
            wait_us=int(line.waits.held[inside].sum()) / each,
            peak_bytes=peak if peak >= 0 else None,
        ),
        world_size=trace.info.world_size,
        communication_ns=talk.busy.length if talk else 0,
        collectives=tuple(
            re.split(r"[(<]", trace.names[code])[0] for code in trace.work.name[rows].tolist()
        ),
        collective_start=trace.work.start[rows],
        collective_end=trace.work.end[rows],
    )


def trace_files(folder: Path | str) -> list[Path]:
    """The files of a folder that may be traces, by name."""
    found = sorted(
        path
        for path in Path(folder).iterdir()
        if path.is_file() and path.name.endswith((".json", ".json.gz"))
    )
    if not found:
        raise AuditProblem(
            f"{folder} holds no .json or .json.gz file",
            "give the folder in which each rank wrote its trace",
        )
    return found


def fleet(paths: Sequence[Path]) -> Fleet:
    """Facts of all ranks of a job."""
    results = list(_read(paths))
    unread = tuple(one for one in results if isinstance(one, Unread))
    given = [one for one in results if isinstance(one, RankFacts)]
    if not given:
        reasons = "; ".join(one.reason for one in unread[:3])
        raise AuditProblem(
            f"none of {len(paths)} files is a trace: {reasons}",
            "give the folder in which each rank wrote its trace",
        )
    ranks, warnings = _one_each(given)
    sizes = [one.world_size or 0 for one in ranks]
    world = max(*sizes, len(ranks), 1 + max(one.row.rank or 0 for one in ranks))
    present = {one.row.rank for one in ranks}
    return Fleet(
        ranks=ranks,
        world_size=world,
        missing=tuple(islice((rank for rank in range(world) if rank not in present), MISSING))
        if len(ranks) < world
        else (),
        alignment=align(
            [(one.collectives, one.collective_start, one.collective_end) for one in ranks]
        ),
        unread=unread,
        warnings=warnings,
    )


def _read(paths: Sequence[Path]) -> Iterable[RankFacts | Unread]:
    """Facts of each file, in a pool of processes unless there is too little to do."""
    workers = min(len(paths), os.cpu_count() or 1)
    if workers < 2 or sum(path.stat().st_size for path in paths) < POOL_BYTES:
        return map(rank_facts, paths)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(rank_facts, paths, chunksize=max(1, len(paths) // (4 * workers))))


def _one_each(given: list[RankFacts]) -> tuple[tuple[RankFacts, ...], tuple[str, ...]]:
    """Ranks in order, one file each; files without a rank are numbered behind the others."""
    known: dict[int, RankFacts] = {}
    warnings: list[str] = []
    for one in given:
        rank, file = one.row.rank, one.row.file
        if rank is None:
            continue
        if rank in known:
            warnings.append(
                f"two files are of rank {rank}: {file} is used, {known[rank].row.file} is not"
            )
        known[rank] = one
    nameless = [one for one in given if one.row.rank is None]
    if nameless and len(given) > 1:
        warnings.append(f"{len(nameless)} files do not say their rank: they are numbered by name")
    ordered = [known[rank] for rank in sorted(known)]
    return (*ordered, *nameless), tuple(warnings)


def _rank_in(name: str) -> int | None:
    found = _RANK.search(name)
    return int(found[1]) if found and len(found[1]) < 8 else None


# -- alignment -------------------------------------------------------------------------------------
# Clocks of ranks set by their collectives, and who came last to each of them.


Sequenced = tuple[Sequence[str], Ints, Ints]
"""A rank's collectives in order of time: kernel names, starts, ends."""


@dataclass(frozen=True)
class Alignment:
    """Clocks and arrivals over the collectives that all ranks share. Arrays are indexed by place in
    the list of ranks.
    """

    shared: int
    """Number of collectives that every rank has."""
    offset_ns: Ints
    """What to subtract from a rank's times to get the first rank's clock."""
    spread_ns: Ints
    """Median distance of a rank's ends from the first rank's after that: how far to trust the
    rest.
    """
    waited_ns: Ints
    """Time a rank spent in collectives before the last rank had come, in all."""
    last_count: Ints
    """How often a rank came last."""
    lateness_ns: Ints
    """How much later than the median rank it came where it came last, in all: what it cost the
    others.
    """

    @property
    def straggler(self) -> int:
        """Place of the rank whose lateness cost the others most."""
        return int(np.argmax(self.lateness_ns))


def align(ranks: Sequence[Sequenced]) -> Alignment | None:
    """Align ranks; None for fewer than two, or without shared collectives."""
    rows = _shared(ranks) if len(ranks) > 1 else []
    if not rows or not len(rows[0]):
        return None
    start = np.stack([one[1][row] for one, row in zip(ranks, rows, strict=True)])
    end = np.stack([one[2][row] for one, row in zip(ranks, rows, strict=True)])
    offset = np.median(end - end[0], axis=1).astype(np.int64)
    start, end = start - offset[:, None], end - offset[:, None]
    last = start.argmax(axis=0)
    waited = np.minimum(start.max(axis=0), end) - start
    late = start.max(axis=0) - np.median(start, axis=0)
    return Alignment(
        shared=start.shape[1],
        offset_ns=offset,
        spread_ns=np.median(np.abs(end - end[0]), axis=1).astype(np.int64),
        waited_ns=np.maximum(waited, 0).sum(axis=1),
        last_count=np.bincount(last, minlength=len(ranks)),
        lateness_ns=np.bincount(last, weights=late, minlength=len(ranks)).astype(np.int64),
    )


def _shared(ranks: Sequence[Sequenced]) -> list[Ints]:
    """For each rank its rows of the collectives that every rank ran equally often, in order."""
    counts = [Counter(names) for names, _, _ in ranks]
    common = {name for name in counts[0] if all(count[name] == counts[0][name] for count in counts)}
    order: NDArray[np.int64] = _by_name_and_turn(ranks[0][0], common)
    turn = np.argsort(order, kind="stable")  # the first rank's order of time, for all
    return [_by_name_and_turn(names, common)[turn] for names, _, _ in ranks]


def _by_name_and_turn(names: Sequence[str], common: set[str]) -> Ints:
    rows = [row for row, name in enumerate(names) if name in common]
    return np.array(sorted(rows, key=lambda row: (names[row], row)), np.int64)
