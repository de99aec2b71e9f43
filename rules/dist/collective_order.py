"""DIST011: ranks call collectives in other orders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor import amounts
from auditor.evidence.recorded.data_parallel import MEMBERS, ONE_PROCESS
from auditor.evidence.source.files import Source
from auditor.evidence.source.loops import left_between
from auditor.evidence.table import Evidence, Table
from auditor.model import Finding, Remedy, Severity, Site
from auditor.recordings.folder import Recording
from auditor.recordings.schema.dist import CommunicationRow
from auditor.recordings.schema.run import StepRow
from auditor.rule import NotLooked, Rule

from ..lines import places_of
from .rows import CollectiveCallRow

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
class Call:
    """One collective of a rank: at which line, and how many steps had begun before."""

    rank: int
    site: Site
    what: str
    numbers: int
    step: int


@dataclass(frozen=True)
class Parting:
    """The first collective, by number, that not all ranks call: what one of them calls, and what
    another calls there; None where that one goes on with its steps without a call.
    """

    number: int
    one: Call
    other: Call | None
    other_rank: int
    other_steps: int
    """Steps that the other one completed."""


@dataclass(frozen=True)
class CollectiveOrder(Table):
    """Where the ranks part; None where all of them call the same."""

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


def _calls(recording: Recording) -> list[Call]:
    return [
        Call(recording.rank, recording.site(row.at), row.what, row.numbers, row.total)
        for row in recording.typed_rows(CollectiveCallRow.part)
        if isinstance(row, CollectiveCallRow)
    ]


def _parting(first: Recording, second: Recording) -> Parting | None:
    ours, theirs = _calls(first), _calls(second)
    for number, (one, two) in enumerate(zip(ours, theirs, strict=False)):
        if one.what != two.what or (one.what in OF_ONE_SIZE and one.numbers != two.numbers):
            return Parting(number, one, two, second.rank, _steps(second))
    if len(ours) == len(theirs):
        return None
    number = min(len(ours), len(theirs))
    longer, shorter = (ours, second) if len(ours) > number else (theirs, first)
    extra, steps = longer[number], _steps(shorter)
    if steps <= extra.step:
        return None  # it may still come there, or died before
    return Parting(number, extra, None, shorter.rank, steps)


def _left(first: Recording, second: Recording) -> Parting | None:
    """Where one rank waits for gradients in a step after which the other one called something else,
    and both ended there.
    """
    ours, theirs = _calls(first), _calls(second)
    longer, shorter = (ours, second) if len(ours) > len(theirs) else (theirs, first)
    number = min(len(ours), len(theirs))
    if len(longer) != number + 1:
        return None
    extra, waits = longer[number], _waits_at(shorter)
    if waits is None or _steps(shorter) != extra.step:
        return None
    other = Call(shorter.rank, waits, WAITS, 0, extra.step)
    return Parting(number, extra, other, shorter.rank, extra.step)


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
            (at for at, pair in enumerate(zip(one, two, strict=False)) if _differ(*pair)),
            min(len(one), len(two)),
        )
        longer, shorter = (one, two) if len(one) > number else (two, one)
        other = shorter[number] if number < len(shorter) else None
        of = second if longer is one else first
        yield Parting(number, longer[number], other, of.rank, steps)


def _differ(one: Call, two: Call) -> bool:
    return one.site != two.site or _kind(one) != _kind(two)


def _kind(call: Call) -> tuple[str, int]:
    return call.what, call.numbers if call.what in OF_ONE_SIZE else 0


def _issued(recording: Recording) -> dict[str, list[Call]]:
    """By group, those of groups that have all ranks."""
    found: dict[str, list[Call]] = {}
    world = int(recording.manifest.get("world_size") or 1)
    for row in recording.typed_rows(CommunicationRow.part):
        if not isinstance(row, CommunicationRow) or row.ranks != world or row.what in OF_TWO:
            continue
        numbers = row.bytes_in // SIZES.get(row.dtype, 1)
        call = Call(recording.rank, recording.site(row.at), row.what, numbers, row.step)
        found.setdefault(row.group, []).append(call)
    return found


def _diagnosed(recording: Recording) -> int:
    rows = recording.typed_rows(StepRow.part)
    return sum(isinstance(row, StepRow) and row.pass_name == "loud" for row in rows)


def _steps(recording: Recording) -> int:
    return sum(isinstance(row, StepRow) for row in recording.typed_rows(StepRow.part))


@dataclass(frozen=True)
class RanksPart(Rule):
    """The ranks do not call the same collectives in the same order"""

    code = "DIST011"
    severity = Severity.ERROR
    since = "0.1"
    advice = (
        "Call it on every rank, outside of `if rank == 0` and of branches on values that differ "
        "between ranks. Only writing and printing belong there."
    )

    def detect(self, order: CollectiveOrder, source: Source) -> Iterator[Finding]:
        parting = order.parting
        if parting is None:
            return
        one, other = parting.one, parting.other
        if other is not None and other.what == WAITS:
            yield _left_alone(parting, other, source)
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
            facts=(
                ("collectives before it that all ranks called", f"{parting.number:,}"),
                ("steps begun by that rank", f"{one.step:,}"),
            ),
            places=places_of(one.site, *before),
        )


LEFT = Remedy(
    "Let all ranks leave the loop after the same step: give each the same number of batches (a "
    "DistributedSampler, drop_last=True), reduce what decides an early stop over the ranks "
    "first, or train inside `with model.join():`."
)


def _left_alone(parting: Parting, waits: Call, source: Source) -> Finding:
    one = parting.one
    loop, test = left_between(source, waits.site, one.site)
    where = (
        f"rank {one.rank} calls {one.what} at {one.site} after {amounts.count(one.step, 'step')}"
    )
    stays = f"rank {waits.rank} waits for gradients at {waits.site}"
    if loop is None:
        said = f"{where}, and {stays}"
    elif test is None:
        said = f"rank {one.rank} reaches the end of this loop first: {where}, while {stays}"
    else:
        said = f"rank {one.rank} leaves the loop, here or at its end: {where}, while {stays}"
    return Finding(
        test or loop or one.site,
        said,
        steps=1,
        facts=(("collectives before it that all ranks called", f"{parting.number:,}"),),
        places=places_of(test or loop, waits.site, one.site),
        remedy=LEFT if loop is not None else None,
    )
