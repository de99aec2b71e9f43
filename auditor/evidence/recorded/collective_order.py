"""The collectives of all ranks beside one another: where the first two ranks part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.recorded.data_parallel import MEMBERS, ONE_PROCESS
from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.recordings.folder import Recording
from auditor.recordings.schema import CollectiveCallRow, CommunicationRow, StepRow
from auditor.rule import NotLooked

OF_TWO = frozenset({"send", "recv"})
"""What two ranks do, in whatever group."""

SIZES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of a number; of others one byte counts as one."""

OF_ONE_SIZE = frozenset({"all_reduce", "reduce", "broadcast"})
"""Collectives whose tensors are of one size on all ranks; gathered ones need not be."""


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
        """Rank 0 beside each other rank, in the first run: a second one ends before the calls
        part.
        """
        members = getattr(evidence.recording, MEMBERS, ())
        if len(members) < 2:
            raise NotLooked(ONE_PROCESS)
        ranks = sorted(
            (each for each in members if each.has(cls.parts[0])), key=lambda each: each.rank
        )
        found = [parting for each in ranks[1:] if (parting := _parting(ranks[0], each)) is not None]
        if not found and ranks and ranks[0].manifest.get("played"):
            found = [each for other in ranks[1:] for each in _issued_otherwise(ranks[0], other)]
        return cls(min(found, key=lambda parting: parting.number, default=None))


def _calls(recording: Recording) -> list[Call]:
    return [
        Call(recording.rank, recording.site(row.at), row.what, row.numbers, row.total)
        for row in recording.first_rows(CollectiveCallRow.part)
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
    for row in recording.first_rows(CommunicationRow.part):
        if not isinstance(row, CommunicationRow) or row.ranks != world or row.what in OF_TWO:
            continue
        numbers = row.bytes_in // SIZES.get(row.dtype, 1)
        call = Call(recording.rank, recording.site(row.at), row.what, numbers, row.step)
        found.setdefault(row.group, []).append(call)
    return found


def _diagnosed(recording: Recording) -> int:
    """Steps of the diagnostic pass that a rank completed."""
    rows = recording.first_rows(StepRow.part)
    return sum(isinstance(row, StepRow) and row.pass_name == "loud" for row in rows)


def _steps(recording: Recording) -> int:
    """Steps that a rank completed in its first run, of all passes."""
    return sum(isinstance(row, StepRow) for row in recording.first_rows(StepRow.part))
