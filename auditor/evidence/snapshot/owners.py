"""What the memory at its peak was for: parameters, gradients, optimizer state, the step's own."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from auditor.evidence.snapshot.file import Event
from auditor.evidence.snapshot.state_at import LiveBlock
from auditor.evidence.table import Evidence
from auditor.recordings.schema.sync import OwnerRow

STEP = "step"
OF_STEP, KEPT = (
    "made in the step (activations, temporaries)",
    "other, made in an earlier step and kept",
)
EARLIER = "other, from before the watched steps"
FOR_EVER = 2**63
ORDER = ("parameter", "gradient", "optimizer state")
WORKSPACE = "workspace"
NAMES = {
    "parameter": "parameters",
    "gradient": "gradients",
    "optimizer state": "optimizer state",
    WORKSPACE: "cuBLAS workspaces, which torch keeps",
}


@dataclass(frozen=True)
class Category:
    """Bytes of live blocks that serve one purpose."""

    name: str
    size: int
    blocks: int


class Owners:
    """Addresses that the recorder saw in use for something, with the times (us since 1970) when it
    saw them.

    An address is used again for other things: a mark counts for a block only if it was made while
    that block lived.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._marks: dict[str, dict[int, list[int]]] = {what: defaultdict(list) for what in NAMES}
        self.steps: list[int] = []
        self._updates: list[tuple[int, int]] = []
        for row in _rows(evidence):
            if row.what == STEP:
                self.steps.append(int(row.time_us))
                continue
            # parameters are looked at before an optimizer's step, its state after it
            time_us = int(row.time_us)
            if row.what == ORDER[0]:
                self._updates.append((time_us, time_us))
            elif row.what == ORDER[-1] and self._updates:
                self._updates[-1] = (self._updates[-1][0], time_us)
            for address in row.addresses if row.what in self._marks else ():
                self._marks[row.what][address].append(int(row.time_us))

    @property
    def known(self) -> bool:
        """Whether an optimizer's step was seen while allocations were recorded."""
        return any(self._marks[what] for what in ORDER)

    def updating(self, time_us: int) -> bool:
        """Whether an optimizer was stepping then; one without state is not seen to."""
        began = bisect_right(self._updates, (time_us, FOR_EVER)) - 1
        return began >= 0 and time_us <= self._updates[began][1]

    def purpose(self, address: int, born_us: int, gone_us: int) -> str:
        """What a block was for that lived from ``born_us`` until ``gone_us``; empty if unseen."""
        for what, name in NAMES.items():
            times = self._marks[what].get(address, [])
            first = bisect_left(times, born_us)
            if first < len(times) and times[first] <= gone_us:
                return name
        return ""

    def age(self, born_us: int, now_us: int) -> str:
        """Of a block of unknown purpose: from which step it is, if it lives at ``now_us``."""
        began = bisect_right(self.steps, now_us) - 1
        if began >= 0 and born_us >= self.steps[began]:
            return OF_STEP
        return KEPT if self.steps and born_us >= self.steps[0] else EARLIER


def _rows(evidence: Evidence) -> Sequence[OwnerRow]:
    """Of the run that the snapshot is of."""
    run = evidence.recording.to_oom
    if run is not None:
        return run.rows(OwnerRow)
    return evidence.rows(OwnerRow) if evidence.has(OwnerRow.part) else ()


def by_category(
    blocks: Iterable[LiveBlock],
    trace: Sequence[Event],
    at: int,
    time_us: Sequence[int],
    owners: Owners,
) -> tuple[Category, ...]:
    """Live blocks after event ``at`` by purpose, the largest first; nothing if unknown."""
    if not owners.known or not time_us:
        return ()
    births = defaultdict(list)
    for index, event in enumerate(trace):
        if event["action"] == "alloc":
            births[event["addr"]].append(index)
    sizes: dict[str, list[int]] = defaultdict(list)
    for block in blocks:
        later = births[block.address]
        following = bisect_right(later, max(block.born, at))
        gone = time_us[later[following]] if following < len(later) else FOR_EVER
        born = time_us[block.born] if block.born >= 0 else 0
        sizes[owners.purpose(block.address, born, gone) or owners.age(born, time_us[at])].append(
            block.size
        )
    found = (Category(name, sum(each), len(each)) for name, each in sizes.items())
    return tuple(sorted(found, key=lambda category: -category.size))
