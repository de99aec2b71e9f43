"""Where the host waited for the device in a trace: cause, place, time, and what the device lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from auditor import amounts
from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import need_a_device, timeline_of
from auditor.model import Site

if TYPE_CHECKING:
    from auditor.timeline import Timeline
    from auditor.timeline.tree import UserFunction

Cause = Literal[
    "scalar", "branch", "shape", "copy to host", "copy to device", "copy", "explicit", "other"
]

CAUSES: dict[str, Cause] = {
    "item": "scalar",
    "nonzero": "shape",
    "copy to host": "copy to host",
    "copy to device": "copy to device",
    "copy on device": "copy",
    "copy": "copy",
    "explicit": "explicit",
}
"""Words of :data:`auditor.timeline.waits.CAUSES`; anything else is ``other``."""


@dataclass(frozen=True)
class WaitPlace:
    """Waits of one cause at one place. Times are sums over the trace in us; ``steps`` are those
    that it was seen on.

    ``operator`` is the outermost operator around the wait (what the program called), ``api`` the
    runtime call that held the host. ``site`` is the ``def`` of the function around it, None if
    the trace has no Python frames. ``won_us`` is the idle
    time of the device that the wait caused: what would come back without it.
    """

    cause: Cause
    operator: str
    api: str
    site: Site | None
    backward: bool
    asynchronous: bool
    """Whether only the memory's being pageable held the host: the copy was asked not to wait."""
    seen: frozenset[int]
    n: int
    held_us: float
    won_us: float
    of: int
    copied: int = 0
    """Bytes that the copies among the waits moved; -1 where the trace does not say."""
    slow_us: float = 0.0
    """What pageable copies among them took longer on an idle device than pinned ones."""
    copying_us: float = 0.0
    """Time of the copies among them on the device."""
    pinned: str = ""
    """What pinned memory reaches, and the source of that, in words."""
    rows: tuple[int, ...] = ()
    """Which waits of the timeline they are."""
    timed: bool = True
    """Whether its times are a GPU's."""

    @property
    def pattern(self) -> StepPattern:
        """On which steps the host waited here."""
        return step_pattern(set(self.seen), self.of)

    @property
    def per_step(self) -> float:
        """Waits in each step, on average."""
        return self.n / self.of

    @property
    def won_us_per_step(self) -> float:
        """Idle time of the device in each step that the wait caused."""
        return self.won_us / self.of

    @property
    def lost_us_per_step(self) -> float:
        """What each step would gain: idle time, and what pinned memory would save of copies."""
        return (self.won_us + self.slow_us) / self.of

    @property
    def speed(self) -> str:
        """How fast the copies ran on the device; empty if the trace does not say."""
        return (
            f"{self.copied / self.copying_us / 1e3:.3g} GB/s"
            if self.copied > 0 and self.copying_us
            else ""
        )

    @property
    def amount(self) -> str:
        """How much was copied each time, in words; empty if the trace does not say."""
        speed = f" at {self.speed}" if self.slow_us else ""
        return f"{amounts.size(self.copied / self.n)} each{speed}" if self.copied > 0 else ""

    @property
    def _times(self) -> tuple[tuple[str, str], ...]:
        return (
            ("host held", f"{amounts.duration(self.held_us / self.of)} per step"),
            ("device idle because of it", f"{amounts.duration(self.won_us_per_step)} per step"),
        )

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        copied = (("copied", self.amount),) if self.copied > 0 else ()
        slow = f"{self.pinned}: {amounts.duration(self.slow_us / self.of)} per step less"
        return (
            *copied,
            *((("pinned memory reaches", slow),) if self.slow_us else ()),
            ("operator", self.operator or "none: the program's own call"),
            ("runtime call", self.api),
            ("seen on", f"{self.pattern} of the trace"),
            *(self._times if self.timed else ()),
            ("pass", "backward" if self.backward else "forward"),
        )


def _untimed(place: WaitPlace) -> WaitPlace:
    return replace(place, held_us=0.0, won_us=0.0, slow_us=0.0, copying_us=0.0, timed=False)


@dataclass(frozen=True)
class TraceWaits(Table):
    """Waits inside the trace's steps (all of it without marks), the profiler's own left out."""

    files: ClassVar[tuple[str, ...]] = ("trace.json.gz",)

    marked: bool = False
    """Whether the trace marks its steps; else it counts as one, and nothing is said per step."""
    timed: bool = True
    """Whether its times are a GPU's: not those of a null device."""
    places: tuple[WaitPlace, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> TraceWaits:
        """From the trace. Raises :class:`NotLooked` without a device: a CPU never waits."""
        line = timeline_of(evidence)
        need_a_device(shown=bool(line.devices), missing=line.device_missing)
        timed = not line.trace.info.null_device
        places = _places(line)
        return cls(line.steps.marked, timed, tuple(places if timed else map(_untimed, places)))

    def of(self, *causes: Cause, asynchronous: bool = False) -> list[WaitPlace]:
        """Places with one of these causes, the costliest first; asynchronous copies apart."""
        chosen = (
            place
            for place in self.places
            if place.cause in causes and place.asynchronous == asynchronous
        )
        return sorted(chosen, key=lambda place: -place.won_us)


_Key = tuple[Cause, str, "UserFunction | None", bool, bool]
"""What makes two waits one finding: cause, operator, place, backward, asynchronous."""


def _places(line: Timeline) -> Iterator[WaitPlace]:
    trace, waits, tree = line.trace, line.waits, line.tree
    inside = ~waits.profiler & ((waits.step >= 0) | (not line.steps.marked))
    groups: dict[_Key, list[int]] = defaultdict(list)
    synchronised = frozenset(waits.operator[waits.synchronises & (waits.operator >= 0)].tolist())
    for row in inside.nonzero()[0].tolist():
        outermost = int(waits.outermost[row])
        operator = trace.names[tree.name[outermost]] if outermost >= 0 else ""
        cause = _cause(waits.cause_name(row, trace, tree), operator)
        alone = not waits.synchronises[row] and int(waits.operator[row]) not in synchronised
        backward, asynchronous = bool(waits.backward[row]), alone and cause in COPYING
        groups[cause, operator, line.wait_places[row], backward, asynchronous].append(row)
    for key, rows in groups.items():
        yield _place(line, key, rows)


def _place(line: Timeline, key: _Key, rows: list[int]) -> WaitPlace:
    import numpy as np

    trace, waits, made, lost = line.trace, line.waits, line.copies, line.pageable
    cause, operator, place, backward, asynchronous = key
    longest = max(rows, key=lambda row: int(waits.held[row]))
    # a copy and its synchronisation are one wait
    synchronised = int(waits.synchronises[rows].sum())
    work = line.launches.copy_of_call[waits.call[rows]]
    copies = np.searchsorted(made.work, work[work >= 0])
    sizes = made.bytes[copies]
    return WaitPlace(
        cause=cause,
        operator=operator,
        api=trace.names[trace.calls.name[waits.call[longest]]],
        site=Site(place.file, place.line, place.function) if place is not None else None,
        backward=backward,
        asynchronous=asynchronous,
        seen=frozenset(max(0, int(step)) for step in waits.step[rows]),
        n=synchronised or len(rows),
        held_us=float(waits.held[rows].sum()) / 1e3,
        won_us=float(line.wait_prices[rows].sum()) / 1e3,
        of=line.steps.count,
        copied=int(sizes.sum()) if (sizes >= 0).all() else -1,
        slow_us=float(lost.slow_ns[copies].sum()) / 1e3,
        copying_us=float(made.ns[copies].sum()) / 1e3,
        pinned=str(lost.to_host if made.to_host[copies].any() else lost.to_device),
        rows=tuple(rows),
    )


def _cause(name: str, operator: str) -> Cause:
    cause = CAUSES.get(name, "other")
    return "branch" if cause == "scalar" and operator in BRANCHES else cause


COPYING = frozenset({"copy to host", "copy to device", "copy"})

BRANCHES = frozenset({"aten::is_nonzero", "aten::equal", "aten::allclose"})
"""Operators whose result Python asks for its truth."""
