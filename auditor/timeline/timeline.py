"""The evidence in one trace, each table computed when first asked for, and kept; many ranks as one job."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from auditor.errors import AuditProblem
from auditor.model import Rank
from auditor.timeline import device, phases, totals, tree, what_if
from auditor.timeline import waits as waiting
from auditor.timeline.intervals import (
    STREAM_ORDERED,
    Intervals,
    is_launch,
    is_step,
    mask,
    plain,
    spans_of,
    union,
    without,
)
from auditor.timeline.phases import loading, steps_of, that_count
from auditor.timeline.reading import read
from auditor.timeline.trace import Flags, Ints, Trace
from auditor.timeline.tree import CallTree, UserFunction, call_tree
from auditor.timeline.waits import profilers_own

STRETCH_NS = 1_000_000
"""Shorter gaps are Python's ordinary pace between operators (tens of us), no residual."""


@dataclass(frozen=True)
class Composition:
    """Time of each step in ns. The parts overlap one another, but for those that say otherwise."""

    us: Ints
    """The whole step, as :class:`auditor.evidence.trace.facts.TraceStep` names it."""
    busy: Ints
    """Any device worked."""
    to_device: Ints
    """A copy from the host to a device ran."""
    to_device_alone: Ints
    """A copy to a device ran and no other work did: the cost of the copies."""
    to_device_slow: Ints
    """Of that the part that pinned memory would not have needed: the price of pageable memory."""
    to_host: Ints
    """A copy from a device to the host ran."""
    to_host_alone: Ints
    to_host_slow: Ints
    loader: Ints
    """The loop waited for its loader; 0 if no loader was recorded."""
    loader_alone: Ints
    """The loop waited for its loader while no device worked."""
    unknown: Ints
    """Stretches of at least :data:`STRETCH_NS` without anything known, on host or device."""
    longest_unknown: tuple[int, int]
    """Start and end of the longest of those stretches; (0, 0) without any."""


def _composition(line: Timeline) -> Composition:
    """What each step's time was spent on. A loader on another thread delays no step."""
    steps, busy, made = line.steps, line.busy, line.copies
    waiting = loading(line, line.step_thread)
    unknown = _unknown(line)
    longest = int(np.argmax(unknown.end - unknown.start)) if len(unknown.start) else -1
    return Composition(
        steps.end - steps.start,
        steps.share_of(busy),
        *_copying(line, made.to_device),
        *_copying(line, made.to_host),
        loader=steps.share_of(waiting),
        loader_alone=steps.share_of(without(waiting, busy)),
        unknown=steps.share_of(unknown),
        longest_unknown=(int(unknown.start[longest]), int(unknown.end[longest]))
        if longest >= 0
        else (0, 0),
    )


def _copying(line: Timeline, direction: Flags) -> tuple[Ints, Ints, Ints]:
    """Time of each step with copies of one direction, with these alone, and lost as pageable."""
    work, steps, made = line.trace.work, line.steps, line.copies
    mine = np.zeros(len(work.start), np.bool_)
    mine[made.work[direction]] = True
    copying = spans_of(work, mine)
    lost = direction & (made.step >= 0)
    slow = np.bincount(made.step[lost], line.pageable.slow_ns[lost], steps.count).astype(np.int64)
    alone = without(copying, spans_of(work, ~mine))
    return steps.share_of(copying), steps.share_of(alone), slow


def _unknown(line: Timeline) -> Intervals:
    """Long stretches inside steps without any event."""
    trace, steps = line.trace, line.steps
    edges = np.array([steps.start.min(initial=0), steps.end.max(initial=0)])
    known = [  # one table after the other: a trace has millions of events, and few stretches
        *_outermost(line.tree, that_count(trace)),
        line.busy,
        profilers_own(trace),
        Intervals(edges, edges),
    ]
    all_known = union(
        np.concatenate([each.start for each in known]), np.concatenate([each.end for each in known])
    )
    quiet = all_known.gaps().within(steps.windows)
    long = quiet.end - quiet.start >= STRETCH_NS
    return Intervals(quiet.start[long], quiet.end[long])


def _outermost(tree: CallTree, counts: Flags) -> list[Intervals]:
    """Time of operators that count and of calls in no counting operator: few of them."""
    operators, calls = tree.sources
    found = []
    for table, parent, rows in (
        (operators, tree.parent[: tree.operators], np.flatnonzero(counts)),
        (calls, tree.parent[tree.operators :], np.arange(len(calls.start))),
    ):
        above = parent[rows]
        within = (
            (above >= 0) & counts[above] & (table.end[rows] <= operators.end[above])
            if len(counts)
            else above >= 0
        )
        found.append(spans_of(table, rows[~within]))
    return found


class Timeline:
    """Evidence of a :class:`Trace`. Times in ns on its clock; devices by work, busiest first."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @classmethod
    def of(cls, path: Path | str) -> Timeline:
        """Read a file; raises what :func:`auditor.timeline.read` raises."""
        return cls(read(path))

    steps = cached_property(steps_of)
    launches = cached_property(device.launches)
    launch_delay_ns = cached_property(device.launch_delay_ns)
    devices = cached_property(device.devices)
    waits = cached_property(waiting.waits)
    copies = cached_property(device.copies)
    pageable = cached_property(device.pageable)
    loader = cached_property(phases.loader_waits)
    composition = cached_property(_composition)
    optimizer = cached_property(phases.optimizer_use)
    allocator_calls = cached_property(phases.allocator_calls)
    idle = cached_property(waiting.idle)
    replays = cached_property(what_if.replays)
    communication = cached_property(totals.communications)
    memory = cached_property(totals.memory_use)
    launching_operator = cached_property(totals.launching_operator)
    casts = cached_property(totals.casts)
    awkward_products = cached_property(totals.awkward_products)
    attention = cached_property(phases.attention)
    operators = cached_property(totals.operator_totals)
    kernels = cached_property(totals.kernel_totals)
    runtime_calls = cached_property(totals.call_totals)
    waiting_memsets = cached_property(waiting.waiting_memsets)

    @cached_property
    def _step_marks(self) -> Ints:
        return np.flatnonzero(mask(self.trace.names, self.trace.operators.name, is_step))

    @cached_property
    def tree(self) -> CallTree:
        """Which span ran inside which on the host."""
        return call_tree(self.trace.operators, self.trace.calls, self._step_marks)

    @cached_property
    def busy(self) -> Intervals:
        """The time in which any device worked."""
        return union(self.trace.work.start, self.trace.work.end)

    @cached_property
    def device_missing(self) -> bool:
        """Whether kernels were launched, or devices are listed, yet no device's work is there."""
        launched = mask(self.trace.names, self.trace.calls.name, is_launch).any()
        return not len(self.trace.work.start) and bool(launched or self.trace.info.devices)

    @cached_property
    def wait_places(self) -> list[UserFunction | None]:
        """The user's function around each wait, None if the trace has no frames."""
        found = self.waits
        return tree.places(self.trace, self.trace.calls.thread[found.call], found.start)

    def places_of(self, rows: Ints) -> list[UserFunction | None]:
        """The user's functions around operators (rows of the tree)."""
        operators = self.trace.operators
        return tree.places(self.trace, operators.thread[rows], operators.start[rows])

    @cached_property
    def driver_calls(self) -> Ints:
        """Calls (rows of ``trace.calls``) that take memory from the driver or give it back, and
        memsets that hold the host.
        """
        rows = [one.rows for one in self.allocator_calls if plain(one.api) not in STREAM_ORDERED]
        return np.unique(np.concatenate([*rows, self.waiting_memsets]))

    @cached_property
    def wait_prices(self) -> Ints:
        """For each host wait the device's idle time that it cost, in ns, shared out with others."""
        idle = self.idle
        return np.zeros(len(self.waits.call), np.int64) if idle is None else idle.of_waits

    def host_in(self, start: int, end: int, thread: int) -> str:
        """What a host thread was in for most of a stretch of time; empty if the trace has none."""
        return waiting.doing(self.trace, (start, end), thread)

    def call_prices(self, rows: Ints) -> Ints:
        """What calls among :attr:`driver_calls` cost: idle ns because they held the host."""
        if self.idle is None:
            return np.zeros(len(rows), np.int64)
        return self.idle.of_driver[np.searchsorted(self.idle.driver_calls, rows)]

    @cached_property
    def longest_unknown(self) -> tuple[UserFunction | None, str]:
        """The user's function, and anybody's innermost, in the longest stretch without events."""
        start, end = self.composition.longest_unknown
        thread = self.main_thread
        middle, threads = np.array([(start + end) // 2]), np.array([thread], np.int32)
        innermost = tree.around(self.trace, thread, start, end)
        return tree.places(self.trace, threads, middle)[0], innermost

    @cached_property
    def step_thread(self) -> int:
        """The host thread that marks the steps, -1 where the profiler did not mark them."""
        threads = self.trace.operators.thread[self._step_marks]
        return int(np.bincount(threads).argmax()) if len(threads) else -1

    @cached_property
    def main_thread(self) -> int:
        """The thread of the steps, else the busiest host thread."""
        threads = self.trace.operators.thread
        if self.step_thread >= 0 or not len(threads):
            return self.step_thread
        return int(np.bincount(threads).argmax())

    @cached_property
    def launched_ns(self) -> Ints:
        """For each row of the tree the time of the device work that it launched itself."""
        launcher, work = self.launching_operator, self.trace.work
        known = launcher >= 0
        spent = np.bincount(
            launcher[known], weights=(work.end - work.start)[known], minlength=len(self.tree.name)
        )
        return spent.astype(np.int64)

    @cached_property
    def operator_calls(self) -> dict[str, int]:
        """How often each operator and annotation ran, by name."""
        numbers = np.bincount(self.trace.operators.name)
        return {
            self.trace.names[code]: int(numbers[code]) for code in np.flatnonzero(numbers).tolist()
        }

    def compute(self) -> None:
        """Compute every table now (benchmarks, and processes that send a timeline on)."""
        for name, member in vars(type(self)).items():
            if isinstance(member, cached_property):
                getattr(self, name)


# -- ranks -----------------------------------------------------------------------------------------
# Many ranks as one job: each trace read alone, clocks aligned by collectives, and who kept whom
# waiting.


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
    late: Late | None
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
    results = list(_read_ranks(paths))
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
        late=latest(ranks),
        unread=unread,
        warnings=warnings,
    )


def _read_ranks(paths: Sequence[Path]) -> Iterable[RankFacts | Unread]:
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
# Clocks of ranks set by their collectives, and who came last to them.


@dataclass(frozen=True)
class Late:
    """The rank whose lateness to collectives cost the others most, by its place in the list."""

    place: int
    last: int
    """How many of the ``shared`` collectives, which every rank has, it came last to."""
    shared: int
    waited_ns: int
    """What the median of the others waited in them for the last rank, less what this one did."""
    clocks_ns: int
    """How far apart the ranks' clocks still are after they were set by the ends of collectives."""


def latest(ranks: Sequence[RankFacts]) -> Late | None:
    """The late one; None for fewer than two, or without shared collectives."""
    rows = _shared(ranks) if len(ranks) > 1 else []
    if not rows or not len(rows[0]):
        return None
    pairs = list(zip(ranks, rows, strict=True))
    start = np.stack([rank.collective_start[row] for rank, row in pairs])
    end = np.stack([rank.collective_end[row] for rank, row in pairs])
    offset = np.median(end - end[0], axis=1).astype(np.int64)
    start, end = start - offset[:, None], end - offset[:, None]
    last = start.argmax(axis=0)
    waited = np.maximum(np.minimum(start.max(axis=0), end) - start, 0).sum(axis=1)
    late = start.max(axis=0) - np.median(start, axis=0)
    place = int(np.bincount(last, weights=late).argmax())
    return Late(
        place=place,
        last=int((last == place).sum()),
        shared=start.shape[1],
        waited_ns=int(np.median(np.delete(waited, place)) - waited[place]),
        clocks_ns=int(np.median(np.abs(end - end[0]), axis=1).max()),
    )


def _shared(ranks: Sequence[RankFacts]) -> list[Ints]:
    """For each rank its rows of the collectives that every rank ran equally often, in order."""
    counts = [Counter(rank.collectives) for rank in ranks]
    common = {name for name in counts[0] if all(count[name] == counts[0][name] for count in counts)}
    orders = [_by_name_and_turn(rank.collectives, common) for rank in ranks]
    turn = np.argsort(orders[0], kind="stable")  # the first rank's order of time, for all
    return [order[turn] for order in orders]


def _by_name_and_turn(names: Sequence[str], common: set[str]) -> Ints:
    rows = [row for row, name in enumerate(names) if name in common]
    return np.array(sorted(rows, key=lambda row: (names[row], row)), np.int64)
