"""Who hung, by the dumps of torch's flight recorder: for DIST011."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from auditor.evidence.dumps import Dump, DumpedCall, dumps_of
from auditor.evidence.snapshot.segments import Origins
from auditor.evidence.table import Evidence, Table
from auditor.model import Site

OF_ONE_SIZE = frozenset({"all_reduce", "reduce", "broadcast"})
"""Collectives whose tensors are of one size on all ranks; gathered ones need not be."""

SHOWN = 8
"""Ranks that are named one by one."""


@dataclass(frozen=True)
class Rank:
    """A rank at a collective: what it calls there and at which line; ``what`` is empty where it does
    not call it, and then ``last`` is what it called last, anywhere.
    """

    rank: int
    what: str = ""
    numbers: tuple[int, ...] = ()
    state: str = ""
    site: Site | None = None
    last: str = ""


@dataclass(frozen=True)
class Hang:
    """The collective that does not end: ``number`` by the group's own count.

    ``waiting`` call it, ``absent`` do not or call another one, of ``without`` there is no dump.
    """

    group: str
    number: int
    waiting: tuple[Rank, ...]
    absent: tuple[Rank, ...]
    without: tuple[int, ...]
    since_ns: int

    def follows(self, other: Hang) -> bool:
        """Whether a rank that is absent here waits there."""
        absent = {each.rank for each in self.absent}
        return not absent.isdisjoint(each.rank for each in other.waiting)


@dataclass(frozen=True)
class Hangs(Table):
    """The hang that the others follow from: of all groups one whose absent ranks wait in no other,
    and of several the one that has waited longest; None where every collective that was called
    ended.
    """

    first: Hang | None = None

    @classmethod
    def build(cls, evidence: Evidence) -> Hangs:
        """From the dumps of all ranks. Raises :class:`NotLooked` where there are none."""
        dumps, places = dumps_of(evidence), Origins(evidence)
        groups = dict.fromkeys(
            call.process_group
            for dump in dumps.values()
            for call in dump.entries
            if not call.is_p2p
        )
        found = [hang for group in groups for hang in _hangs(group, dumps, places)]

        def order(hang: Hang) -> tuple[bool, bool, int]:
            return not hang.absent, any(map(hang.follows, found)), hang.since_ns

        return cls(min(found, key=order, default=None))


def _hangs(group: tuple[str, str], dumps: Mapping[int, Dump], places: Origins) -> Iterator[Hang]:
    """The first collective of a group that not all call, or that does not end on any rank."""
    calls = {
        rank: {
            call.collective_seq_id: call
            for call in dump.entries
            if call.process_group == group and not call.is_p2p
        }
        for rank, dump in dumps.items()
    }
    members = _members(group, dumps) or {rank for rank, known in calls.items() if known}
    without = tuple(sorted(members - dumps.keys()))
    inside = {rank: calls[rank] for rank in sorted(members & dumps.keys())}
    if not any(inside.values()):
        return
    first = max(min(known) for known in inside.values() if known)  # older ones were overwritten
    for number in range(first, max(max(known, default=0) for known in inside.values()) + 1):
        here = {rank: known.get(number) for rank, known in inside.items()}
        waiting, absent = _parted(here)
        stuck = [call for call in waiting.values() if not call.completed]
        open_ = [call for call in stuck if call.completed is False]
        if not stuck or (not absent and len(open_) < len(here)):
            continue  # it ended: some have seen it, or nobody can say
        yield Hang(
            group[1] or group[0],
            number,
            tuple(_rank(rank, call, places) for rank, call in waiting.items()),
            tuple(_absentee(rank, here[rank], dumps[rank], places) for rank in absent),
            without,
            min(call.time_created_ns for call in stuck),
        )
        return


def _members(group: tuple[str, str], dumps: Mapping[int, Dump]) -> set[int]:
    """Ranks of a group, as any rank knows it."""
    for dump in dumps.values():
        for known in dump.pg_config.values():
            if known.name == group[0]:  # groups without a description are all "undefined"
                return set(known.members)
    return set()


def _parted(here: Mapping[int, DumpedCall | None]) -> tuple[dict[int, DumpedCall], list[int]]:
    """Ranks that call what most call there, and those that do not."""
    kinds = {rank: _kind(call) for rank, call in here.items() if call is not None}
    if not kinds:
        return {}, []
    most = max(kinds.values(), key=list(kinds.values()).count)
    waiting = {
        rank: call for rank, call in here.items() if call is not None and kinds[rank] == most
    }
    return waiting, [rank for rank in here if rank not in waiting]


def _kind(call: DumpedCall) -> tuple[str, tuple[int, ...]]:
    return call.what, _numbers(call) if call.what in OF_ONE_SIZE else ()


def _numbers(call: DumpedCall) -> tuple[int, ...]:
    return tuple(map(math.prod, call.input_sizes))


def _rank(rank: int, call: DumpedCall, places: Origins) -> Rank:
    return Rank(rank, call.what, _numbers(call), call.state, places.site(call.frames))


def _absentee(rank: int, call: DumpedCall | None, dump: Dump, places: Origins) -> Rank:
    if call is not None:
        return _rank(rank, call, places)
    last = max(dump.entries, key=lambda each: each.time_created_ns, default=None)
    if last is None:
        return Rank(rank)
    return Rank(rank, site=places.site(last.frames), last=last.what)


def ranks_named(ranks: Sequence[int]) -> str:
    """``rank 3`` or ``ranks 0-2, 5``."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and spans[-1][-1] == rank - 1:
            spans[-1][1:] = [rank]
        else:
            spans.append([rank])
    said = ["-".join(map(str, span)) for span in spans]
    shown = ", ".join(said[:SHOWN]) + (", ..." if len(said) > SHOWN else "")
    return f"rank{'s' * (len(ranks) != 1)} {shown}"
