"""What the allocator would have held under other settings, or on another card: the recorded history, replayed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from auditor import amounts
from auditor.allocator import AllocatorSettings, History, Replayed, replay
from auditor.evidence.snapshot_course import Allocations, Course
from auditor.evidence.snapshot_file import SnapshotData, snapshot_of
from auditor.evidence.table import Table
from auditor.recording import Recording
from auditor.rule import NotLooked

MIB, GIB = 1 << 20, 1 << 30
EVENT_LIMIT = 120_000
"""Events of a history that is replayed at most: each replay takes about 25 us for each."""
AGREES = 0.05
"""By how much a replay of the recorded settings may miss the recorded peak, before its word counts for nothing."""
CARDS = (4, 6, 8, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 141, 180)
"""GiB of the cards that people train on."""
CONTEXT = 450 * MIB
"""What a CUDA context and its libraries take of a card besides: about 300 to 600 MiB."""


@dataclass(frozen=True)
class Outcome:
    """What one replay came to, in bytes. ``setting`` as ``PYTORCH_CUDA_ALLOC_CONF`` has it, empty for those recorded."""

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
            f"{amounts.size(self.peak_reserved)} reserved at most, {amounts.count(self.retries, 'retry', 'retries')}, {ended}",
        )


@dataclass(frozen=True)
class WhatIf(Table):
    """The history of the device with most memory under other settings, on the same card. ``card`` is None where nothing failed."""

    parts: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    device: int
    card: int | None
    recorded: Outcome
    others: tuple[Outcome, ...]

    @classmethod
    def build(cls, recording: Recording) -> WhatIf:
        """From the recording's snapshot. Raises :class:`NotLooked` where a replay of its history would say nothing."""
        return what_if(snapshot_of(recording), Allocations.build(recording).devices[0])


def what_if(data: SnapshotData, course: Course) -> WhatIf:
    """Replays one device's history. Raises :class:`NotLooked` where that would say nothing."""
    try:
        history = trusted(data, course)
        card = card_of(history, course, data)
        recorded = _outcome("", replay(history, fresh=True, total_bytes=card))
        _check(recorded, history, course)
        others = [_outcome(text, replay(history, settings, fresh=True, total_bytes=card)) for text, settings in _others(history)]
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise NotLooked(f"the snapshot's history cannot be replayed: {type(error).__name__}") from None
    return WhatIf(course.device, card, recorded, tuple(others))


def trusted(data: SnapshotData, course: Course) -> History:
    """The history, if a replay can be believed. Raises :class:`NotLooked` otherwise."""
    if course.untrusted:
        raise NotLooked(f"the snapshot cannot be replayed under other settings: {course.untrusted}")
    if len(course.reserved) > EVENT_LIMIT:
        raise NotLooked(f"the snapshot's history has {len(course.reserved)} events: it is replayed up to {EVENT_LIMIT}")
    return History.from_snapshot(data.as_torch(), course.device)


def card_of(history: History, course: Course, data: SnapshotData) -> int | None:
    """Bytes that torch could hold on the card, where the device refused something; None where it never did."""
    below = history.recorded.card_below
    if below is None:
        return None
    bounds = [below - 1]
    for index in course.ooms:
        left = int(data.trace(course.device)[index].get("device_free", below))
        bounds.append(max(course.peak_reserved, course.reserved[index] + left))
    return min(bounds)


def _check(outcome: Outcome, history: History, course: Course) -> None:
    told = history.recorded.peak_reserved
    if abs(outcome.peak_reserved - told) > AGREES * told or bool(outcome.ooms) != bool(course.ooms):
        raise NotLooked("the snapshot cannot be replayed under other settings: the replay does not reserve what was recorded")


def _others(history: History) -> Iterator[tuple[str, AllocatorSettings]]:
    """Settings worth a try on top of those recorded: one change each, what changes nothing left out."""
    for text, name in (
        ("expandable_segments:True", "expandable_segments"),
        ("max_split_size_mb:128", "max_split_size"),
        ("max_split_size_mb:512", "max_split_size"),
        ("roundup_power2_divisions:8", "roundup_power2_divisions"),
    ):
        changed = replace(history.settings, **{name: getattr(AllocatorSettings.parse(text), name)})
        if changed != history.settings:
            yield text, changed


def _outcome(setting: str, replayed: Replayed) -> Outcome:
    return Outcome(setting, replayed.peak_reserved, replayed.peak_allocated, replayed.retries, replayed.ooms)


def on_cards(data: SnapshotData, course: Course) -> tuple[tuple[str, str], ...]:
    """Rows of facts: the same history on cards around the size that it needs. Empty where a replay would say nothing."""
    if course.ooms:
        return ()  # what would have come after the error is unknown
    try:
        history = trusted(data, course)
        unbounded = replay(history, fresh=True).peak_reserved
    except (NotLooked, LookupError, TypeError, ValueError, ArithmeticError):
        return ()
    settings = history.settings
    if abs(unbounded - course.peak_reserved) > AGREES * course.peak_reserved:
        return ()
    tight = [size for size in CARDS if size * GIB - CONTEXT < unbounded][-1:]
    roomy = [size for size in CARDS if size * GIB - CONTEXT >= unbounded][:1]
    tried = [(size, replay(history, settings, fresh=True, total_bytes=size * GIB - CONTEXT)) for size in (*tight, *roomy)]
    return tuple((f"on a card of {size} GiB", _said(result)) for size, result in tried)


def _said(result: Replayed) -> str:
    if result.ooms:
        return "would run out of memory"
    return f"fits with {amounts.count(result.retries, 'retry', 'retries')}" if result.retries else "fits"
