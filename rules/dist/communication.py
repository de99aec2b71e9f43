"""DIST002 to 4, 9 and 11: what ranks send each other and wait for, and in which order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from auditor import amounts
from auditor.evidence.recorded.data_parallel import MEMBERS, ONE_PROCESS
from auditor.evidence.recorded.lines import Lines
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import timed_timeline
from auditor.evidence.trace.ranks import Ranks
from auditor.model import Finding, Remedy, Severity, Site
from auditor.model.what_if import Change
from auditor.recordings.folder import Recording
from auditor.recordings.schema.dist import CommunicationRow
from auditor.recordings.schema.run import StepRow
from auditor.rule import NotLooked, Rule, knob

from ..lines import LineRule, places_of
from .rows import CollectiveCallRow, CollectiveRow

if TYPE_CHECKING:
    from auditor.timeline import Timeline


OF_ONE_SIZE = frozenset({"all_reduce", "reduce", "broadcast"})
"""Collectives whose tensors are of one size on all ranks; gathered ones need not be."""

OF_TWO = frozenset({"send", "recv"})
"""What two ranks do, in whatever group."""

SIZES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of a number; of others one byte counts as one."""


WAITS = "backward"
"""What a rank is said to call that waits for gradients, which no line of the program sends."""

OF_RANKS = re.compile(
    r"gloo|NCCL|DistBackendError|DistNetworkError|ProcessGroup|Connection (?:reset|closed) by peer",
    re.IGNORECASE,
)
"""What an error says that a rank gets since another one is gone, or calls something else."""

ENDED_BY_OTHERS = frozenset({"SIGABRT", "alone"})
"""How a rank may be ended that waits in a collective: by its backend, or after another rank."""

FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
BACKWARD_FILE = "torch/autograd/graph.py"
"""Where every backward of a hung rank's stack runs through."""


@dataclass(frozen=True)
class CollectiveCall:
    """One collective of a rank: at which line, and how many steps had begun before."""

    rank: int
    site: Site
    what: str
    numbers: int
    step: int


@dataclass(frozen=True)
class Parting:
    """The first collective, by number, that not all ranks call: what one of them calls, and what
    another calls there; None if that one goes on with its steps without a call.
    """

    number: int
    one: CollectiveCall
    other: CollectiveCall | None
    other_rank: int


@dataclass(frozen=True)
class CollectiveOrder(Table):
    """Where the ranks part; None if all of them call the same."""

    parts: ClassVar[tuple[str, ...]] = ("collective_calls",)

    parting: Parting | None = None

    @classmethod
    def build(cls, evidence: Evidence) -> CollectiveOrder:
        """Rank 0 beside each other rank, in the first run: a second ends before they part."""
        members = getattr(evidence.recording, MEMBERS, ())
        if len(members) < 2:
            raise NotLooked(ONE_PROCESS)
        ranks = sorted(
            (each for each in members if each.has(cls.parts[0])), key=lambda each: each.rank
        )
        found = [parting for each in ranks[1:] if (parting := _parting(ranks[0], each)) is not None]
        if not found and all(map(_ended_by_others, ranks)):
            found = [each for other in ranks[1:] if (each := _left(ranks[0], other)) is not None]
        if not found and ranks and ranks[0].manifest.get("played"):
            found = [each for other in ranks[1:] for each in _issued_otherwise(ranks[0], other)]
        return cls(min(found, key=lambda parting: parting.number, default=None))


def _calls(recording: Recording) -> list[CollectiveCall]:
    return [
        CollectiveCall(recording.rank, recording.site(row.at), row.what, row.numbers, row.total)
        for row in recording.rows(CollectiveCallRow)
    ]


def _parting(first: Recording, second: Recording) -> Parting | None:
    ours, theirs = _calls(first), _calls(second)
    for number, (one, two) in enumerate(zip(ours, theirs, strict=False)):
        if one.what != two.what or (one.what in OF_ONE_SIZE and one.numbers != two.numbers):
            return Parting(number, one, two, second.rank)
    if len(ours) == len(theirs):
        return None
    number = min(len(ours), len(theirs))
    longer, shorter = (ours, second) if len(ours) > number else (theirs, first)
    extra = longer[number]
    if len(shorter.rows(StepRow)) <= extra.step:
        return None  # it may still come there, or died before
    return Parting(number, extra, None, shorter.rank)


def _left(first: Recording, second: Recording) -> Parting | None:
    """Where a rank waits for gradients, the other one called something else, and both ended."""
    ours, theirs = _calls(first), _calls(second)
    longer, shorter = (ours, second) if len(ours) > len(theirs) else (theirs, first)
    number = min(len(ours), len(theirs))
    if len(longer) != number + 1:
        return None
    extra, waits = longer[number], _waits_at(shorter)
    if waits is None or len(shorter.rows(StepRow)) != extra.step:
        return None
    other = CollectiveCall(shorter.rank, waits, WAITS, 0, extra.step)
    return Parting(number, extra, other, shorter.rank)


def _ended_by_others(recording: Recording) -> bool:
    """Whether a rank ended in a way that the others may have caused."""
    error = recording.manifest.get("error") or {}
    if recording.manifest.get("outcome") == "timeout":
        return True
    said = f"{error.get('type', '')}: {error.get('message', '')}"
    return error.get("type") in ENDED_BY_OTHERS or OF_RANKS.search(said) is not None


def _waits_at(recording: Recording) -> Site | None:
    """The line of the backward that a rank died or hung in; None for other calls."""
    error = recording.manifest.get("error") or {}
    trace = str(error.get("traceback") or "")
    if BACKWARD_FILE not in trace.replace("\\", "/"):
        return None
    if recording.manifest.get("outcome") != "timeout":
        return recording.site_at(error["file"], error["line"]) if error.get("file") else None
    own = recording.manifest.get("sources") or {}
    for frame in FRAME.finditer(trace, max(0, trace.find("Current thread"))):
        if recording.relative(frame["file"]) in own:
            return recording.site_at(frame["file"], int(frame["line"]), frame["function"])
    return None


def _issued_otherwise(first: Recording, second: Recording) -> Iterator[Parting]:
    """Where the collectives part that DDP, FSDP and DTensor issue as well, in a group of all ranks:
    rehearsed ranks do not hang of it. The lines are the first that differ.
    """
    ours, theirs = _issued(first), _issued(second)
    steps = min(_diagnosed(first), _diagnosed(second))
    for group in ours.keys() | theirs.keys():
        one, two = (
            [call for call in calls.get(group, ()) if call.step < steps] for calls in (ours, theirs)
        )
        if [_kind(call) for call in one] == [_kind(call) for call in two]:
            continue
        number = next(
            (
                at
                for at, (a, b) in enumerate(zip(one, two, strict=False))
                if (a.site, _kind(a)) != (b.site, _kind(b))
            ),
            min(len(one), len(two)),
        )
        longer, shorter = (one, two) if len(one) > number else (two, one)
        other = shorter[number] if number < len(shorter) else None
        of = second if longer is one else first
        yield Parting(number, longer[number], other, of.rank)


def _kind(call: CollectiveCall) -> tuple[str, int]:
    return call.what, call.numbers if call.what in OF_ONE_SIZE else 0


def _issued(recording: Recording) -> dict[str, list[CollectiveCall]]:
    """By group, those of groups that have all ranks."""
    found: dict[str, list[CollectiveCall]] = {}
    world = int(recording.manifest.get("world_size") or 1)
    for row in recording.rows(CommunicationRow):
        if row.ranks != world or row.what in OF_TWO:
            continue
        numbers = row.bytes_in // SIZES.get(row.dtype, 1)
        call = CollectiveCall(recording.rank, recording.site(row.at), row.what, numbers, row.step)
        found.setdefault(row.group, []).append(call)
    return found


def _diagnosed(recording: Recording) -> int:
    return sum(row.pass_name == "loud" for row in recording.rows(StepRow))


class RanksPart(Rule):
    """The ranks do not call the same collectives in the same order"""

    code = "DIST011"
    severity = Severity.ERROR
    since = "0.1"
    advice = (
        "Call it on every rank, outside of `if rank == 0` and of branches on values that differ "
        "between ranks. Only writing and printing belong there."
    )

    def detect(self, order: CollectiveOrder) -> Iterator[Finding]:
        parting = order.parting
        if parting is None:
            return
        one, other = parting.one, parting.other
        if other is not None and other.what == WAITS:
            yield _left_alone(parting, other)
            return
        if other is None:
            there = f"rank {parting.other_rank} goes on to its next step without it"
        elif other.what != one.what or other.numbers == one.numbers:
            there = f"rank {other.rank} calls {other.what} at {other.site}"
        else:
            there = f"rank {other.rank} passes {amounts.count(other.numbers, 'number')}"
            there += f" and rank {one.rank} {one.numbers:,}"
        before = (other.site,) if other is not None and other.site != one.site else ()
        yield Finding(
            one.site,
            f"rank {one.rank} calls {one.what} here, but {there}: the ranks wait in different "
            "collectives",
            steps=1,
            places=places_of(one.site, *before),
        )


LEFT = Remedy(
    "Let all ranks leave the loop after the same step: give each the same number of batches (a "
    "DistributedSampler, drop_last=True), reduce what decides an early stop over the ranks "
    "first, or train inside `with model.join():`."
)


def _left_alone(parting: Parting, waits: CollectiveCall) -> Finding:
    one = parting.one
    return Finding(
        one.site,
        f"rank {one.rank} calls {one.what} here after {amounts.count(one.step, 'step')}, while rank "
        f"{waits.rank} waits for gradients at {waits.site}",
        steps=1,
        places=places_of(waits.site, one.site),
        remedy=LEFT,
    )


MARKS = ("c10d::", "gloo:", "mpi:", "nccl:", "record_param_comms")
"""How operators begin that belong to a process group."""


@dataclass(frozen=True)
class Job(Table):
    """One rank's part in a distributed job. Times are sums inside the steps in us."""

    files: ClassVar[tuple[str, ...]] = ("trace.json.gz",)

    backend: str = ""
    """As torch names it: ``nccl``, ``gloo``, ``cpu:gloo,cuda:nccl``; empty if unknown."""
    rank: int | None = None
    world_size: int = 1
    steps: int = 1
    marked: bool = False
    window_us: float = 0.0
    kernels: int = 0
    collectives: tuple[tuple[str, int], ...] = ()
    """Kernels of collectives on the device, and how many."""
    operators: int = 0
    """Operators of process groups on the host."""
    communication_us: float = 0.0
    exposed_us: float = 0.0
    of_span: float = 0.0
    """Exposed part of the time from the device's first work to its last, steps or not."""

    @classmethod
    def build(cls, evidence: Evidence) -> Job:
        """From the trace. Raises :class:`NotLooked` if no device worked."""
        line = timed_timeline(evidence)
        if line.device_missing or line.idle is None:
            raise NotLooked("the trace shows no GPU")
        return _job(line)

    @property
    def exposed_share(self) -> float:
        """Part of the steps' time with a collective running and no other kernel."""
        return self.exposed_us / self.window_us if self.window_us else 0.0


def _job(line: Timeline) -> Job:
    info, use = line.trace.info, line.devices[0]
    assert line.idle is not None
    windows = line.idle.windows
    talk = next((one for one in line.communication if one.device == use.device), None)
    return Job(
        backend=(info.backend or "").lower(),
        rank=info.rank,
        world_size=info.world_size or 1,
        steps=line.steps.count,
        marked=line.steps.marked,
        window_us=windows.length / 1e3,
        kernels=use.kernels,
        collectives=tuple(talk.names.items()) if talk else (),
        operators=sum(
            number for name, number in line.operator_calls.items() if name.startswith(MARKS)
        ),
        communication_us=talk.busy.overlap(windows) / 1e3 if talk else 0.0,
        exposed_us=talk.exposed.overlap(windows) / 1e3 if talk else 0.0,
        of_span=talk.exposed.length / max(1, use.span_ns) if talk else 0.0,
    )


class BackendOfTheHost(Rule):
    """Ranks with GPUs communicate through a host backend."""

    code = "DIST002"
    severity = Severity.WARNING
    since = "0.1"
    advice = 'Call torch.distributed.init_process_group("nccl") (the name of RCCL on AMD, too).'

    def detect(self, job: Job) -> Iterator[Finding]:
        host_only = job.backend in ("gloo", "mpi")
        if not host_only or not job.kernels or job.collectives or job.world_size < 2:
            return
        yield Finding(
            None,
            f"{job.world_size} ranks with GPUs communicate over {job.backend}: gradients travel "
            "through host memory",
            steps=job.steps if job.marked else 0,
            per_step=job.operators / job.steps if job.marked else 0.0,
            seen_on="trace",
            severity=None if job.operators else Severity.NOTE,
        )


@dataclass(frozen=True)
class ExposedCommunication(Rule):
    """The device only communicates for a large part of the step."""

    code = "DIST003"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Overlap communication with the backward pass (DistributedDataParallel, FSDP with prefetch), "
        "reduce less often (no_sync() while accumulating), or send fewer bytes (bf16 gradients)."
    )

    share: float = knob(0.1, "Report if it is exposed for at least this share of the steps' time.")
    severe: float = knob(0.4, "Report an error from this share on if all ranks were recorded.")

    def detect(self, job: Job, ranks: Ranks) -> Iterator[Finding]:
        share = job.exposed_share
        if not job.collectives or max(share, job.of_span) < self.share:
            return
        who = f" on rank {job.rank}" if ranks.rows else ""
        hidden = 1 - job.exposed_us / job.communication_us if job.communication_us else 0.0
        waited = (
            f", and the others wait {amounts.percent(ranks.waited_share)} of theirs for it"
            if ranks.waited_share >= self.share
            else ""
        )
        yield Finding(
            None,
            f"exposed communication takes {amounts.percent(share)} of the steps' "
            f"time{who} ({amounts.percent(hidden)} of all communication is overlapped){waited}",
            steps=job.steps if job.marked else 0,
            lost_us_per_step=job.exposed_us / job.steps if job.marked else None,
            basis="estimated" if job.marked else "none",
            seen_on="trace",
            severity=self._severity(job, ranks),
            facts=tuple((name, f"{number} in the trace") for name, number in job.collectives[:4]),
            changes=(Change("collectives"),) if job.marked else (),
        )

    def _severity(self, job: Job, ranks: Ranks) -> Severity | None:
        if not job.marked or min(job.exposed_share, job.of_span) < self.share:
            return Severity.NOTE
        return Severity.ERROR if ranks.rows and job.exposed_share >= self.severe else None


@dataclass(frozen=True)
class RankKeepsOthersWaiting(Rule):
    """One rank arrives late at the collectives, and the others wait for it."""

    code = "DIST004"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Look at the late rank's own findings first: they make it late. Balance the "
        "work if it computes more."
    )

    share: float = knob(0.1, "Report if the median rank waits for at least this share of the step.")
    severe: float = knob(0.2, "Report an error if it waits at least this share.")
    last: float = knob(1 / 3, "Report only if it is last in at least this share of collectives.")
    least_steps: int = knob(3, "Report a note if the traces have fewer steps than this.")

    def detect(self, ranks: Ranks) -> Iterator[Finding]:
        if len(ranks.rows) < 2:
            raise NotLooked("one trace cannot tell; pass the folder with the traces of all ranks")
        if ranks.late is None:
            raise NotLooked(
                "the ranks share no collective from which their clocks could be aligned"
            )
        if (
            ranks.waited_share < self.share
            or ranks.last < self.last * ranks.shared
            or ranks.waited_us <= ranks.clocks_us
        ):
            return
        yield Finding(
            None,
            f"the other ranks wait {amounts.duration(ranks.waited_us)} of each step "
            f"({amounts.percent(ranks.waited_share)}) for rank {ranks.late}, "
            f"last at {ranks.last} of {ranks.shared} collectives",
            steps=ranks.steps,
            lost_us_per_step=ranks.waited_us if ranks.steps >= self.least_steps else None,
            basis="estimated" if ranks.steps >= self.least_steps else "none",
            seen_on="trace",
            severity=self._severity(ranks),
            facts=(("clocks aligned within", amounts.duration(ranks.clocks_us)),),
        )

    def _severity(self, ranks: Ranks) -> Severity | None:
        if ranks.steps < self.least_steps:
            return Severity.NOTE
        return Severity.ERROR if ranks.waited_share >= self.severe else None


class BarrierEveryStep(LineRule):
    """A call of barrier makes all ranks wait for one another on each step"""

    code = "DIST009"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Remove it: collectives wait for all ranks anyway. To time a step, use "
        "torch.cuda.Event or this audit."
    )

    def detect(
        self, collectives: Lines[CollectiveRow], machine: Machine, source: Source
    ) -> Iterator[Finding]:
        if not len(collectives) and machine.ranks < 2:
            raise NotLooked(ONE_PROCESS)
        reason = "communication outside torch (through files) may rely on it"
        for line in self.usual(collectives.lines(lambda call: call.what == "barrier")):
            ranks = max(call.ranks for call in line.rows)
            if ranks > 1:
                yield self.report(
                    line,
                    f"dist.barrier() makes {ranks} ranks wait for one another on {line.pattern}",
                    facts=line.facts[:1] if machine.simulated else line.facts,
                    remedy=self.dropped(line, source, "barrier", reason=reason),
                )
