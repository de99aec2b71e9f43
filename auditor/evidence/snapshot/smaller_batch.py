"""A smaller batch, estimated: the history replayed with all smaller that a step made of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from auditor import amounts
from auditor.allocator import replay
from auditor.allocator.history import Call
from auditor.evidence.snapshot.file import Event, snapshot_of
from auditor.evidence.snapshot.history import Course
from auditor.evidence.snapshot.owners import EARLIER, FOR_EVER, Owners
from auditor.evidence.snapshot.what_if import replays_of
from auditor.evidence.table import Evidence
from auditor.recordings.schema.data import BatchRow, LoaderRow
from auditor.rule import NotLooked

Row = tuple[str, str]


def with_half_the_batch(
    evidence: Evidence, course: Course, owners: Owners, card: int | None = None
) -> tuple[Row, ...]:
    """A row of facts: the same history with a batch of half the size, on a card of so many bytes
    (None: of any).

    Empty where nobody can tell what scales: the batch must come from one DataLoader, and an
    optimizer must have stepped, so that parameters, gradients and optimizer state are known. Of the
    rest scales what a step allocated outside the optimizer's step in a multiple of the batch's
    size: most such blocks have a dimension that is the batch. Copies of weights, as autocast makes
    them, are taken for activations too, so the estimate is rather too low.
    """
    size = batch_size(evidence)
    if size is None or size < 2 or not owners.known or not course.time_us:
        return ()
    try:
        replays = replays_of(evidence, course)
        calls = tuple(_scaled(evidence, course, owners, size))
        history = replace(course.history, calls=calls)
        done = replay(history, fresh=not replays.from_recorded, total_bytes=card)
    except (NotLooked, LookupError, TypeError, ValueError, ArithmeticError):
        return ()
    ended = "" if card is None else ", out of memory" if done.ooms else ", fits"
    told = (
        f"{amounts.size(done.peak_allocated)} at the peak, {amounts.size(done.peak_reserved)} "
        f"reserved{ended}"
    )
    return ((f"with a batch of {size // 2} instead of {size} (estimated)", told),)


def batch_size(evidence: Evidence) -> int | None:
    """What the audited batches' loader was told; None without one, or of several sizes."""
    used = {row.loader for row in evidence.rows(BatchRow)}
    sizes = {row.batch_size for row in evidence.rows(LoaderRow) if row.loader in used}
    size = sizes.pop() if len(sizes) == 1 else None
    return size if isinstance(size, int) else None


def _scaled(evidence: Evidence, course: Course, owners: Owners, size: int) -> Iterator[Call]:
    lives = Lives(snapshot_of(evidence).trace(course.device), course.time_us)
    for call in course.history.calls:
        if call.action not in ("alloc", "oom") or call.size % size:
            yield call
            continue
        now = course.time_us[call.at]
        purpose = (
            owners.purpose(call.address, now, lives.gone_us(call.address, call.at))
            if call.action == "alloc"
            else ""
        )
        fixed = purpose or owners.updating(now) or owners.age(now, now) == EARLIER
        yield call if fixed else call._replace(size=call.size // size * (size // 2))


class Lives:
    """Until when a block can have lived: the next allocation at its address. To be asked in the
    order of the history.
    """

    def __init__(self, trace: Sequence[Event], time_us: Sequence[int]) -> None:
        births: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for index, event in enumerate(trace):
            if event["action"] == "alloc":
                births[event["addr"]].append((index, time_us[index]))
        self._coming: dict[int, Iterator[tuple[int, int]]] = {
            address: iter(found) for address, found in births.items()
        }
        self._next: dict[int, tuple[int, int]] = {}

    def gone_us(self, address: int, born: int) -> int:
        """Time of the first allocation there after event ``born``."""
        found = self._next.get(address, (-1, 0))
        while found[0] <= born:
            found = next(self._coming.get(address, iter(())), (FOR_EVER, FOR_EVER))
        self._next[address] = found
        return found[1]
