"""What one run of a drill did, step by step, as its recording tells it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from auditor.recordings.folder import Recording, Row
from auditor.recordings.schema.drill import (
    DrillBackwardRow,
    DrillEndRow,
    DrillInjectedRow,
    DrillRow,
    DrillStartRow,
)

Event = TypeVar("Event", bound=DrillRow)

MESSAGE = 120
"""Characters of an error's message that are quoted."""


@dataclass(frozen=True)
class Log:
    """One run. ``outcome`` is that of the recording; ``error`` what ended it, if anything did.

    ``step`` of its events is the target's own number, from 0.
    """

    outcome: str
    error: Row | None
    events: tuple[DrillRow, ...]
    exhausted: bool = False

    @classmethod
    def read(cls, recording: Recording, offset: int) -> Log:
        """From a sealed recording; ``offset`` is the target's number of the first recorded step (1
        for scripts).
        """
        manifest = recording.manifest
        error = dict(manifest["error"]) if manifest.get("error") else None
        if error is not None and error.get("file"):
            error["file"] = recording.relative(error["file"])
        events = tuple(
            msgspec.structs.replace(row, step=row.step + offset * (row.pass_name == "drill"))
            for row in recording.rows(DrillRow)
        )
        return cls(manifest["outcome"], error, events, bool(manifest.get("exhausted")))

    def of(self, kind: type[Event]) -> tuple[Event, ...]:
        """All events of this kind, in order."""
        return of_kind(self.events, kind)

    @cached_property
    def ends(self) -> dict[int, DrillEndRow]:
        """What was left after each completed step."""
        return {event.step: event for event in self.of(DrillEndRow)}

    @property
    def start(self) -> DrillStartRow | None:
        """Just before the first optimizer step of the process."""
        return next(iter(self.of(DrillStartRow)), None)

    @cached_property
    def injected(self) -> DrillInjectedRow | None:
        """The fault, if it was planted."""
        return next(iter(self.of(DrillInjectedRow)), None)

    @cached_property
    def before(self) -> tuple[DrillRow, ...]:
        """Events up to the fault."""
        return self.events[: self._at] if self._at is not None else self.events

    @cached_property
    def after(self) -> tuple[DrillRow, ...]:
        """Events from the fault on."""
        return self.events[self._at + 1 :] if self._at is not None else ()

    @cached_property
    def _at(self) -> int | None:
        places = enumerate(self.events)
        return next((n for n, event in places if isinstance(event, DrillInjectedRow)), None)

    @cached_property
    def losses(self) -> dict[int, float]:
        """The last loss that each step went backward from, as the engine saw it (scaled, where a
        GradScaler scales).
        """
        return {
            event.step: float(event.loss)
            for event in self.of(DrillBackwardRow)
            if event.loss is not None
        }

    @property
    def said(self) -> str:
        """``ValueError: loss is NaN (trainer.py, line 44)``: what ended the run."""
        error = self.error or {}
        message = textwrap.shorten(
            str(error.get("message", "")).strip().split("\n")[0], MESSAGE, placeholder=" ..."
        )
        where = (
            f" ({Path(error['file']).as_posix()}, line {error['line']})"
            if error.get("file")
            else ""
        )
        return (
            f"{error.get('type', self.outcome)}: {message}{where}"
            if message
            else f"{error.get('type', self.outcome)}{where}"
        )


@dataclass(frozen=True)
class Observation:
    """One sentence about what was seen. ``bad`` ones fail the drill; ``note`` ones do not speak for
    or against.

    ``brief`` is what the verdict says of a bad one; empty where another one says it.
    """

    kind: Literal["good", "bad", "note"]
    text: str
    brief: str = ""


def good(text: str) -> Observation:
    """What a trainer should do."""
    return Observation("good", text)


def bad(text: str, brief: str = "") -> Observation:
    """What loses work or weights."""
    return Observation("bad", text, brief)


def note(text: str) -> Observation:
    """What helps to understand the rest."""
    return Observation("note", text)


def first_difference(one: Log, other: Log, before: int) -> int | None:
    """The first step before ``before`` after which two runs differ in weights or optimizer state;
    None if they do not.
    """
    steps = sorted(step for step in one.ends.keys() & other.ends.keys() if step < before)
    ends = ((step, one.ends[step], other.ends[step]) for step in steps)
    return next((step for step, a, b in ends if (a.weights, a.state) != (b.weights, b.state)), None)


def of_kind(events: Iterable[DrillRow], kind: type[Event]) -> tuple[Event, ...]:
    """The events of this kind, in order."""
    return tuple(event for event in events if isinstance(event, kind))


def count(number: int, noun: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(names: list[str], most: int = 3) -> str:
    """The first names, and how many more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
