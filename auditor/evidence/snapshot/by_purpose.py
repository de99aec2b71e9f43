"""An allocation history told by what the memory was for: parameters, gradients, optimizer state,
what a step makes, the rest.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from auditor.evidence.snapshot.by_line import Move, Told
from auditor.evidence.snapshot.file import Event, SnapshotData
from auditor.evidence.snapshot.history import Course
from auditor.evidence.snapshot.owners import EARLIER, FOR_EVER, KEPT, OF_STEP, Owners
from auditor.evidence.snapshot.state_at import state_after


def told_by_purpose(data: SnapshotData, course: Course, owners: Owners) -> Told | None:
    """Who allocated and freed, where *who* is a purpose; None where no optimizer was seen, or torch
    wrote no times (before 2.3).
    """
    return _Teller(data, course, owners).told() if owners.known and course.time_us else None


@dataclass
class _Teller:
    """One walk through the history. ``young`` are blocks of the present step that nothing is known
    of: address to bytes.
    """

    data: SnapshotData
    course: Course
    owners: Owners
    numbers: dict[str, int] = field(default_factory=lambda: {EARLIER: 0, OF_STEP: 1, KEPT: 2})
    at: dict[int, int] = field(default_factory=dict)
    young: dict[int, int] = field(default_factory=dict)

    def told(self) -> Told:
        trace = self.data.trace(self.course.device)
        lives = Lives(trace, self.course.time_us)
        before = self._before(lives)
        owner, moves = array("i"), dict[int, tuple[Move, ...]]()
        begins = iter((*self.owners.steps, FOR_EVER))
        following = next(begins)
        for index, (event, now) in enumerate(zip(trace, self.course.time_us, strict=True)):
            if now >= following:
                moves[index] = tuple(
                    Move(self.numbers[OF_STEP], self.numbers[KEPT], size)
                    for size in self.young.values()
                )
                self.at.update(dict.fromkeys(self.young, self.numbers[KEPT]))
                self.young.clear()
            while now >= following:
                following = next(begins)
            owner.append(self._changed(index, event, lives))
        sizes = tuple(before[number] for number in range(len(self.numbers)))
        return Told(self.course, tuple(self.numbers), owner, sizes, self.at, moves)

    def _before(self, lives: Lives) -> defaultdict[int, int]:
        """Bytes of each purpose before the first event."""
        found: defaultdict[int, int] = defaultdict(int)
        for block in state_after(self.data, self.course.device, -1).blocks:
            purpose = (
                self.owners.purpose(block.address, 0, lives.gone_us(block.address, -1)) or EARLIER
            )
            number = self.at[block.address] = self.numbers.setdefault(purpose, len(self.numbers))
            found[number] += block.size
        # blocks whose free was pending
        found[0] += self.course.start_allocated - sum(found.values())
        return found

    def _changed(self, index: int, event: Event, lives: Lives) -> int:
        """Whose memory the event changes; -1 where it changes nobody's."""
        action, address = event["action"], event.get("addr", 0)
        if action == "alloc":
            return self._born(index, address, lives)
        if action == "free_requested":
            self.young.pop(address, None)
            return self.at.get(address, 0)
        return -1

    def _born(self, index: int, address: int, lives: Lives) -> int:
        now = self.course.time_us[index]
        purpose = self.owners.purpose(
            address, now, lives.gone_us(address, index)
        ) or self.owners.age(now, now)
        if purpose == OF_STEP:
            earlier = self.course.allocated[index - 1] if index else self.course.start_allocated
            self.young[address] = self.course.allocated[index] - earlier
        number = self.at[address] = self.numbers.setdefault(purpose, len(self.numbers))
        return number


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
