"""What the allocator would have held under other settings or on another card: a replay."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from auditor import amounts
from auditor.allocator import AllocatorSettings, Replayed, replay
from auditor.evidence.snapshot.file import SnapshotData, snapshot_of
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.table import Evidence, Table
from auditor.rule import NotLooked

MIB, GIB = 1 << 20, 1 << 30
EVENT_LIMIT = 300_000
"""Events of a history that is replayed at most: each replay takes about 4 us for each."""
LATE_SHARE = 0.05
"""Share of the peak that may be live before the first event, and still be allocated anew: nobody
knows in which order it came.
"""
AGREES = 0.05
"""By how much a replay of the recorded settings may miss the recorded peak, before its word counts
for nothing.
"""
CHANGES = {
    "expandable_segments:True": "expandable_segments",
    "max_split_size_mb:128": "max_split_size",
    "max_split_size_mb:512": "max_split_size",
    "roundup_power2_divisions:8": "roundup_power2_divisions",
}
"""Settings that are tried, one at a time, and the field of :class:`AllocatorSettings` that each
changes.
"""
CARDS = (4, 6, 8, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 141, 180)
"""GiB of the cards that people train on."""
CONTEXT = 450 * MIB
"""What a CUDA context and its libraries take of a card besides: about 300 to 600 MiB."""


@dataclass(frozen=True)
class Outcome:
    """What one replay came to, in bytes. ``setting`` as ``PYTORCH_CUDA_ALLOC_CONF`` has it, empty
    for those recorded.
    """

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
    is None where nothing failed.

    ``rounded`` says that the recorded settings round sizes up, so that others might need less even
    for the same tensors.
    """

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    device: int
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
    """One device's history, replayed as it was. Raises :class:`NotLooked` where it says nothing."""
    replays = replays_of(evidence, course)
    card = card_of(course, snapshot_of(evidence))
    recorded = replays.under("", card)
    if not _agrees(recorded.peak_reserved, course) or bool(recorded.ooms) != bool(course.ooms):
        raise NotLooked(
            "the snapshot cannot be replayed under other settings: the replay does not reserve "
            "what was recorded"
        )
    return WhatIf(
        course.device,
        card,
        recorded,
        any(course.history.settings.roundup_power2_divisions),
        replays,
    )


class Replays:
    """A device's history under other settings and on other cards, each replay made once.

    Where much was live before the first event, the recorded segments are taken over as they stood:
    the settings then count from that moment on. Else what was live is allocated anew, as if the
    settings had been there from the start of the program.
    """

    def __init__(self, course: Course) -> None:
        self.course = course
        self.from_recorded = (
            course.start_allocated > LATE_SHARE * course.peak_allocated
            and not course.history.expandable
        )
        self._refused = course.retries > 0 or bool(course.ooms)
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
        where it cannot be replayed.
        """
        if (setting, card) not in self._made:
            self._made[setting, card] = self._replayed(setting, card)
        return self._made[setting, card]

    def _replayed(self, setting: str, card: int | None) -> Outcome:
        unlimited = self._made.get((setting, None))
        if (
            card is not None
            and unlimited is not None
            and unlimited.peak_reserved <= card
            and not self._refused
        ):
            return unlimited  # such a card refuses nothing
        try:
            done = replay(
                self.course.history,
                self._settings(setting),
                fresh=not self.from_recorded,
                total_bytes=card,
            )
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise NotLooked(
                f"the snapshot's history cannot be replayed: {type(error).__name__}"
            ) from None
        return Outcome(setting, done.peak_reserved, done.peak_allocated, done.retries, done.ooms)

    def flushing(self, calls: bool) -> Replayed:
        """With the recorded settings on a card without limit, with or without the program's calls
        of ``empty_cache``.
        """
        try:
            return replay(self.course.history, fresh=not self.from_recorded, empty_caches=calls)
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
    """One for all tables of a recording. Raises :class:`NotLooked` where a replay cannot be
    believed, or would take too long.
    """
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


def without_flushes(evidence: Evidence, course: Course) -> tuple[tuple[str, str], ...]:
    """A row of facts: the same history without the program's calls of ``empty_cache``. Empty where
    a replay would say nothing.
    """
    try:
        replays = replays_of(evidence, course)
        if not _agrees(replays.under("", None).peak_reserved, course):
            return ()
        as_it_was, kept = (replays.flushing(calls) for calls in (True, False))
    except NotLooked:
        return ()
    more, less = (
        len(as_it_was.segment_allocs),
        amounts.count(len(kept.segment_allocs), "cudaMalloc call"),
    )
    held, holds = amounts.size(as_it_was.peak_reserved), amounts.size(kept.peak_reserved)
    return (
        (
            "with the cache kept (predicted)",
            f"{less} instead of {more}, {holds} reserved at most instead of {held}",
        ),
    )


def card_of(course: Course, data: SnapshotData) -> int | None:
    """Bytes that torch could hold on the card; None where the device refused nothing."""
    below = course.history.recorded.card_below
    if below is None:
        return None
    bounds = [below - 1]
    for index in course.ooms:
        left = int(data.trace(course.device)[index].get("device_free", below))
        bounds.append(max(course.peak_reserved, course.reserved[index] + left))
    return min(bounds)


def on_cards(evidence: Evidence, course: Course) -> tuple[tuple[str, str], ...]:
    """Rows of facts: the same history on cards around the size that it needs. Empty where a replay
    would say nothing.
    """
    if course.ooms:
        return ()  # what would have come after the error is unknown
    try:
        replays = replays_of(evidence, course)
        unlimited = replays.under("", None).peak_reserved
        if not _agrees(unlimited, course):
            return ()
        tight = [size for size in CARDS if size * GIB - CONTEXT < unlimited][-1:]
        roomy = [size for size in CARDS if size * GIB - CONTEXT >= unlimited][:1]
        # on less, what came before would have gone differently
        least = course.start_reserved if replays.from_recorded else 0
        cards = [(size, size * GIB - CONTEXT) for size in (*tight, *roomy)]
        tried = [(size, replays.under("", card)) for size, card in cards if card >= least]
    except NotLooked:
        return ()
    since = ", from where the history begins" if replays.from_recorded else ""
    return tuple((f"on a card of {size} GiB{since}", _said(outcome)) for size, outcome in tried)


def _said(outcome: Outcome) -> str:
    if outcome.ooms:
        return "would run out of memory"
    return (
        f"fits with {amounts.count(outcome.retries, 'retry', 'retries')}"
        if outcome.retries
        else "fits"
    )
