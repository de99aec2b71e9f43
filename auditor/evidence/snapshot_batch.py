"""A smaller batch, estimated: the recorded history replayed with everything smaller that a step made of its batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from auditor import amounts
from auditor.allocator import replay
from auditor.allocator.history import Call
from auditor.evidence.owners import EARLIER, Owners
from auditor.evidence.snapshot_course import Course
from auditor.evidence.snapshot_file import snapshot_of
from auditor.evidence.snapshot_purposes import Lives
from auditor.evidence.snapshot_whatif import replays_of
from auditor.recording import Recording
from auditor.rule import NotLooked

Row = tuple[str, str]


def with_half_the_batch(recording: Recording, course: Course, owners: Owners, card: int | None = None) -> tuple[Row, ...]:
    """A row of facts: the same history with a batch of half the size, on a card of so many bytes (None: of any).

    Empty where nobody can tell what scales: the batch must come from one DataLoader, and an optimizer must have stepped, so that
    parameters, gradients and optimizer state are known. Of the rest scales what a step allocated outside the optimizer's step in
    a multiple of the batch's size: most such blocks have a dimension that is the batch. Copies of weights, as autocast makes
    them, are taken for activations too, so the estimate is rather too low.
    """
    size = batch_size(recording)
    if size is None or size < 2 or not owners.known or not course.time_us:
        return ()
    try:
        replays = replays_of(recording, course)
        calls = tuple(_scaled(recording, course, owners, size))
        history = replace(course.history, calls=calls)
        done = replay(history, fresh=not replays.from_recorded, total_bytes=card)
    except (NotLooked, LookupError, TypeError, ValueError, ArithmeticError):
        return ()
    ended = "" if card is None else ", out of memory" if done.ooms else ", fits"
    told = f"{amounts.size(done.peak_allocated)} at the peak, {amounts.size(done.peak_reserved)} reserved{ended}"
    return ((f"with a batch of {size // 2} instead of {size} (estimated)", told),)


def batch_size(recording: Recording) -> int | None:
    """What the loader was told that gave the audited batches; None where none did, or several of different sizes."""
    used = {row.get("loader") for row in recording.rows("batches")}
    sizes = {row.get("batch_size") for row in recording.rows("loaders") if row.get("loader") in used}
    size = sizes.pop() if len(sizes) == 1 else None
    return size if isinstance(size, int) else None


def _scaled(recording: Recording, course: Course, owners: Owners, size: int) -> Iterator[Call]:
    lives = Lives(snapshot_of(recording).trace(course.device), course.time_us)
    for call in course.history.calls:
        if call.action not in ("alloc", "oom") or call.size % size:
            yield call
            continue
        now = course.time_us[call.at]
        purpose = owners.purpose(call.address, now, lives.gone_us(call.address, call.at)) if call.action == "alloc" else ""
        fixed = purpose or owners.updating(now) or owners.age(now, now) == EARLIER
        yield call if fixed else call._replace(size=call.size // size * (size // 2))
