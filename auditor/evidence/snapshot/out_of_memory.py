"""An out-of-memory error, explained: what was asked for, what was free, who held the rest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from auditor.allocator import AllocatorSettings
from auditor.evidence.snapshot.file import SnapshotData, snapshot_of
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.snapshot.segments import Origins, origins_of
from auditor.evidence.snapshot.state_at import Holder, State, by_line, state_after
from auditor.evidence.snapshot.what_if import Outcome, what_if
from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.model.sections import RanOut
from auditor.rule import NotLooked

Kind = Literal["demand", "fragmentation", "elsewhere", "unknown"]
UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "bytes": 1}
ASKED = re.compile(r"Tried to allocate ([\d.]+) (GiB|MiB|KiB|bytes)")


@dataclass(frozen=True)
class OutOfMemory(Table):
    """The last error of a device, in bytes. ``happened`` is False where the run and its history
    know of none.

    ``requested`` is None where nothing tells it; ``device_free`` likewise. ``site`` is the line
    that asked. ``what_ifs`` are the replays under other settings, empty where they would say
    nothing (``why_no_what_if``).
    """

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    happened: bool = False
    device: int = 0
    requested: int | None = None
    tried: int | None = None
    """What the allocator then asked of the device: a segment, which torch's message names (``Tried
    to allocate``).
    """
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
        """From the snapshot. Raises :class:`NotLooked` where memory ran out without one."""
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
    """The same for the head of a report; None where memory did not run out, or nothing tells why."""
    try:
        oom = evidence.get(OutOfMemory)
    except NotLooked:
        return None
    if not oom.happened:
        return None
    left = oom.device_free
    short = oom.tried - left if oom.tried is not None and left is not None else 0
    error = evidence.recording.manifest.get("error") or {}
    found = CAPACITY.search(str(error.get("message", "")))
    return RanOut(
        limit=round(float(found[1]) * UNITS[found[2]]) if found else None,
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
    return _told(
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
    error = evidence.recording.manifest.get("error") or {}
    found = ASKED.search(str(error.get("message", "")))
    asked = round(float(found[1]) * UNITS[found[2]]) if found else None
    device = max(
        data.devices,
        key=lambda number: sum(int(each["total_size"]) for each in data.of(number)),
        default=0,
    )
    state = state_after(data, device, -1)
    return _told(
        state,
        origins_of(evidence),
        device=device,
        requested=asked,
        site=_raised_at(evidence),
        why_no_what_if=why,
        timed=False,
    )


def _raised_at(evidence: Evidence) -> Site | None:
    """The user's line it came from: requests of backward's threads have no Python frame."""
    error = evidence.recording.manifest.get("error") or {}
    if not error.get("file"):
        return None
    return evidence.recording.site_at(
        error["file"], error.get("line", 0), error.get("function", "")
    )


def _told(state: State, origins: Origins, *, timed: bool = True, **more: object) -> OutOfMemory:
    return OutOfMemory(
        happened=True,
        reserved=sum(state.segments.values()),
        live=sum(block.size for block in state.blocks),
        largest_free=state.largest_free,
        holders=by_line(state.blocks, origins, timed=timed),
        **more,  # type: ignore[arg-type]
    )
