"""What the allocator would have held under other settings: a replay."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

from auditor import amounts
from auditor.allocator import AllocatorReplay, AllocatorSettings, replay
from auditor.evidence.snapshot.file import SnapshotData, snapshot_of
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.snapshot.state_at import (
    Holder,
    Origins,
    State,
    by_line,
    origins_of,
    state_after,
)
from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.model.sections import RanOut
from auditor.rule import NotLooked

EVENT_LIMIT = 300_000
"""Events of a history that is replayed at most: each replay takes about 4 us for each."""
LATE_SHARE = 0.05
"""Share of the peak that may be live before the first event: its order is unknown."""
AGREES = 0.05
"""By how much a replay of the recorded settings may miss the recorded peak and count."""
CHANGES = {
    "expandable_segments:True": "expandable_segments",
    "max_split_size_mb:128": "max_split_size",
    "max_split_size_mb:512": "max_split_size",
    "roundup_power2_divisions:8": "roundup_power2_divisions",
}
"""Settings tried one at a time, and the :class:`AllocatorSettings` field that each changes."""


@dataclass(frozen=True)
class Outcome:
    """What one replay came to, in bytes. ``setting``: its ALLOC_CONF, empty for the recorded."""

    setting: str
    peak_reserved: int
    peak_allocated: int
    retries: int
    ooms: int

    @property
    def row(self) -> tuple[str, str]:
        """A row of facts."""
        ended = "out of memory" if self.ooms else "fits"
        return (
            f"with {self.setting or 'the settings recorded'}",
            (
                f"{amounts.size(self.peak_reserved)} reserved at most, "
                f"{amounts.count(self.retries, 'retry', 'retries')}, {ended}"
            ),
        )


@dataclass(frozen=True)
class WhatIf(Table):
    """The history of the device with most memory under other settings, on the same card. ``card``
    is None if nothing failed.

    ``rounded`` says that the recorded settings round sizes up, so that others might need less even
    for the same tensors.
    """

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    card: int | None
    recorded: Outcome
    rounded: bool
    replays: Replays = field(repr=False, compare=False)

    @classmethod
    def build(cls, evidence: Evidence) -> WhatIf:
        """From the snapshot. Raises :class:`NotLooked` if a replay would say nothing."""
        return what_if(evidence, evidence.get(Allocations).devices[0])

    @cached_property
    def others(self) -> tuple[Outcome, ...]:
        """One change to the settings each; replayed when asked for."""
        return tuple(self.replays.under(setting, self.card) for setting in self.replays.changes)

    @property
    def since(self) -> tuple[tuple[str, str], ...]:
        """A row of facts where the replays begin in the middle of the program."""
        held = amounts.size(self.replays.course.start_allocated)
        return (
            (("replayed", f"from where the history begins, when {held} were in use"),)
            if self.replays.from_recorded
            else ()
        )

    @property
    def may_save(self) -> int:
        """Bytes that settings can save at most: peak reserved less peak needed."""
        return self.recorded.peak_reserved - (0 if self.rounded else self.recorded.peak_allocated)


def what_if(evidence: Evidence, course: Course) -> WhatIf:
    """One device's history, replayed as it was. Raises :class:`NotLooked` if it says nothing."""
    replays = replays_of(evidence, course)
    card = card_of(course, snapshot_of(evidence))
    recorded = replays.under("", card)
    if not _agrees(recorded.peak_reserved, course) or bool(recorded.ooms) != bool(course.ooms):
        raise NotLooked(
            "the snapshot cannot be replayed under other settings: the replay does not reserve "
            "what was recorded"
        )
    return WhatIf(card, recorded, any(course.history.settings.roundup_power2_divisions), replays)


class Replays:
    """A device's history under other settings, each replay made once.

    Where much was live before the first event, the recorded segments are taken over as they stood:
    the settings then count from that moment on. Else what was live is allocated again, as if the
    settings had been there from the start of the program.
    """

    def __init__(self, course: Course) -> None:
        self.course = course
        self.from_recorded = (
            course.start_allocated > LATE_SHARE * course.peak_allocated
            and not course.history.expandable
        )
        self._made: dict[tuple[str, int | None], Outcome] = {}

    @property
    def changes(self) -> tuple[str, ...]:
        """Settings worth a try: those that change something."""
        return tuple(
            setting
            for setting in CHANGES
            if self._settings(setting) != self.course.history.settings
        )

    def under(self, setting: str, card: int | None) -> Outcome:
        """With ``setting``, in the form of ``PYTORCH_CUDA_ALLOC_CONF``, on top of those recorded;
        empty: as they were.

        ``card`` are the bytes that torch may hold, None for no limit. Raises :class:`NotLooked`
        if it cannot be replayed.
        """
        if (setting, card) not in self._made:
            done = self.replayed(self._settings(setting), total_bytes=card)
            self._made[setting, card] = Outcome(
                setting, done.peak_reserved, done.peak_allocated, done.retries, done.ooms
            )
        return self._made[setting, card]

    def replayed(
        self, settings: AllocatorSettings | None = None, *, total_bytes: int | None = None
    ) -> AllocatorReplay:
        """As :func:`auditor.allocator.replay`. Raises :class:`NotLooked` if it cannot be done."""
        try:
            return replay(
                self.course.history, settings, fresh=not self.from_recorded, total_bytes=total_bytes
            )
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise NotLooked(
                f"the snapshot's history cannot be replayed: {type(error).__name__}"
            ) from None

    def _settings(self, setting: str) -> AllocatorSettings:
        recorded = self.course.history.settings
        if not setting:
            return recorded
        name = CHANGES[setting]
        return replace(recorded, **{name: getattr(AllocatorSettings.parse(setting), name)})


def replays_of(evidence: Evidence, course: Course) -> Replays:
    """One for all tables of a recording. Raises :class:`NotLooked` if a replay is no use."""
    if course.untrusted:
        raise NotLooked(f"the snapshot cannot be replayed under other settings: {course.untrusted}")
    if len(course.reserved) > EVENT_LIMIT:
        raise NotLooked(
            f"the snapshot's history has {len(course.reserved)} events: it is replayed up to "
            f"{EVENT_LIMIT}"
        )
    kept = evidence.once(_replays)
    if course.device not in kept or kept[course.device].course is not course:
        kept[course.device] = Replays(course)
    return kept[course.device]


def _replays(evidence: Evidence) -> dict[int, Replays]:
    return {}


def _agrees(replayed: int, course: Course) -> bool:
    return abs(replayed - course.peak_reserved) <= AGREES * course.peak_reserved


def card_of(course: Course, data: SnapshotData) -> int | None:
    """Bytes that torch could hold on the card; None if the device refused nothing."""
    below = course.history.recorded.card_below
    if below is None:
        return None
    bounds = [below - 1]
    for index in course.ooms:
        left = int(data.trace(course.device)[index].get("device_free", below))
        bounds.append(max(course.peak_reserved, course.reserved[index] + left))
    return min(bounds)


# -- out of memory ---------------------------------------------------------------------------------
# An out-of-memory error, explained: what was asked for, what was free, what held the rest.


Kind = Literal["demand", "fragmentation", "elsewhere", "unknown"]
UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "bytes": 1}
ASKED = re.compile(r"Tried to allocate ([\d.]+) (GiB|MiB|KiB|bytes)")


@dataclass(frozen=True)
class OutOfMemory(Table):
    """The last error of a device, in bytes. ``happened`` is False if the run and its history
    know of none.

    ``requested`` is None if nothing tells it; ``device_free`` likewise. ``site`` is the line
    that asked. ``what_ifs`` are the replays under other settings, empty if they would say
    nothing (``why_no_what_if``).
    """

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    happened: bool = False
    device: int = 0
    requested: int | None = None
    tried: int | None = None
    """What the allocator asked of the device: a segment (torch: ``Tried to allocate``)."""
    device_free: int | None = None
    reserved: int = 0
    live: int = 0
    largest_free: int = 0
    site: Site | None = None
    holders: tuple[Holder, ...] = ()
    what_ifs: tuple[Outcome, ...] = ()
    why_no_what_if: str = ""

    @classmethod
    def build(cls, evidence: Evidence) -> OutOfMemory:
        """From the snapshot. Raises :class:`NotLooked` if memory ran out without one."""
        ended = evidence.recording.manifest.get("outcome") == "oom"
        bare = evidence.bare == "snapshot"
        if evidence.bare and not bare:
            raise NotLooked(f"a {evidence.bare} does not show it: audit run records it")
        if not ended and not bare:
            return cls()
        data, why = snapshot_of(evidence), ""
        courses: tuple[Course, ...] = ()
        try:
            courses = evidence.get(Allocations).devices
        except NotLooked as reason:
            why = str(reason)
        failed = next((course for course in courses if course.ooms), None)
        if failed is None and bare:
            if why:
                raise NotLooked(why)
            return cls()
        if failed is not None:
            return _from_history(data, failed, evidence)
        return _from_message(data, evidence, why)

    @property
    def free_inside(self) -> int:
        """Bytes that the allocator had and no tensor used."""
        return self.reserved - self.live

    @property
    def kind(self) -> Kind:
        """Whether all bytes were in use, or enough free in pieces (or for another stream)."""
        if self.requested is None:
            return "unknown"
        if self.free_inside < self.requested:
            return "demand"
        return "fragmentation" if self.largest_free < self.requested else "elsewhere"


CAPACITY = re.compile(r"total capacity of ([\d.]+) (GiB|MiB|KiB|bytes)")


def ran_out(evidence: Evidence) -> RanOut | None:
    """The shortage for a report's head; None if memory sufficed, or the cause is unknown."""
    try:
        oom = evidence.get(OutOfMemory)
    except NotLooked:
        return None
    if not oom.happened:
        return None
    left = oom.device_free
    short = oom.tried - left if oom.tried is not None and left is not None else 0
    return RanOut(
        limit=_in_message(evidence, CAPACITY),
        in_use=oom.live,
        reserved=oom.reserved,
        requested=oom.requested,
        segment=oom.tried,
        free=left,
        short=short if short > 0 else None,
        fits=tuple(each.setting for each in oom.what_ifs if not each.ooms),
        tried=len(oom.what_ifs),
    )


def _from_history(data: SnapshotData, course: Course, evidence: Evidence) -> OutOfMemory:
    index, origins = course.ooms[-1], origins_of(evidence)
    event, state = data.trace(course.device)[index], state_after(data, course.device, index)
    outcomes: tuple[Outcome, ...] = ()
    why = ""
    try:
        outcomes = what_if(evidence, course).others
    except NotLooked as reason:
        why = str(reason)
    left = event.get("device_free", event.get("addr"))
    settings = AllocatorSettings.from_snapshot(data.settings)
    return _out_of_memory(
        state,
        origins,
        device=course.device,
        requested=int(event["size"]),
        tried=settings.segment_size(int(event["size"])),
        device_free=int(left) if left is not None else None,
        site=origins.site(event.get("frames") or ()) or _raised_at(evidence),
        what_ifs=outcomes,
        why_no_what_if=why,
    )


def _from_message(data: SnapshotData, evidence: Evidence, why: str) -> OutOfMemory:
    """Without a history: the state is the snapshot's, the request is in torch's message."""
    device = max(
        data.devices,
        key=lambda number: sum(int(each["total_size"]) for each in data.of(number)),
        default=0,
    )
    state = state_after(data, device, -1)
    return _out_of_memory(
        state,
        origins_of(evidence),
        device=device,
        requested=_in_message(evidence, ASKED),
        site=_raised_at(evidence),
        why_no_what_if=why,
        timed=False,
    )


def _in_message(evidence: Evidence, pattern: re.Pattern[str]) -> int | None:
    """Bytes that torch's message names."""
    error = evidence.recording.manifest.get("error") or {}
    found = pattern.search(str(error.get("message", "")))
    return round(float(found[1]) * UNITS[found[2]]) if found else None


def _raised_at(evidence: Evidence) -> Site | None:
    """The user's line it came from: requests of backward's threads have no Python frame."""
    error = evidence.recording.manifest.get("error") or {}
    if not error.get("file"):
        return None
    return evidence.recording.site_at(
        error["file"], error.get("line", 0), error.get("function", "")
    )


def _out_of_memory(
    state: State, origins: Origins, *, timed: bool = True, **more: object
) -> OutOfMemory:
    return OutOfMemory(
        happened=True,
        reserved=sum(state.segments.values()),
        live=sum(block.size for block in state.blocks),
        largest_free=state.largest_free,
        holders=by_line(state.blocks, origins, timed=timed),
        **more,  # type: ignore[arg-type]
    )
