"""Clocks of ranks set by their collectives, and who came last to each of them.

A collective ends on all its ranks at about the same time, because none can finish before the last
one has come. So the median difference of the ends of the same collectives is the difference of two
clocks, whatever the machines say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from auditor.timeline.trace import Ints

Sequenced = tuple[Sequence[str], Ints, Ints]
"""A rank's collectives in order of time: kernel names, starts, ends."""


@dataclass(frozen=True)
class Alignment:
    """Clocks and arrivals over the collectives that all ranks share. Arrays are indexed by place in
    the list of ranks.
    """

    shared: int
    """Number of collectives that every rank has."""
    offset_ns: Ints
    """What to subtract from a rank's times to get the first rank's clock."""
    spread_ns: Ints
    """Median distance of a rank's ends from the first rank's after that: how far to trust the
    rest.
    """
    waited_ns: Ints
    """Time a rank spent in collectives before the last rank had come, in all."""
    last_count: Ints
    """How often a rank came last."""
    lateness_ns: Ints
    """How much later than the median rank it came where it came last, in all: what it cost the
    others.
    """

    @property
    def straggler(self) -> int:
        """Place of the rank whose lateness cost the others most."""
        return int(np.argmax(self.lateness_ns))


def align(ranks: Sequence[Sequenced]) -> Alignment | None:
    """Align ranks; None for fewer than two, or without shared collectives."""
    rows = _shared(ranks) if len(ranks) > 1 else []
    if not rows or not len(rows[0]):
        return None
    start = np.stack([one[1][row] for one, row in zip(ranks, rows, strict=True)])
    end = np.stack([one[2][row] for one, row in zip(ranks, rows, strict=True)])
    offset = np.median(end - end[0], axis=1).astype(np.int64)
    start, end = start - offset[:, None], end - offset[:, None]
    last = start.argmax(axis=0)
    waited = np.minimum(start.max(axis=0), end) - start
    late = start.max(axis=0) - np.median(start, axis=0)
    return Alignment(
        shared=start.shape[1],
        offset_ns=offset,
        spread_ns=np.median(np.abs(end - end[0]), axis=1).astype(np.int64),
        waited_ns=np.maximum(waited, 0).sum(axis=1),
        last_count=np.bincount(last, minlength=len(ranks)),
        lateness_ns=np.bincount(last, weights=late, minlength=len(ranks)).astype(np.int64),
    )


def _shared(ranks: Sequence[Sequenced]) -> list[Ints]:
    """For each rank its rows of the collectives that all have: kernels that every rank ran equally
    often, in their order.
    """
    counts = [Counter(names) for names, _, _ in ranks]
    common = {name for name in counts[0] if all(count[name] == counts[0][name] for count in counts)}
    order: NDArray[np.int64] = _by_name_and_turn(ranks[0][0], common)
    turn = np.argsort(order, kind="stable")  # the first rank's order of time, for all
    return [_by_name_and_turn(names, common)[turn] for names, _, _ in ranks]


def _by_name_and_turn(names: Sequence[str], common: set[str]) -> Ints:
    """Rows of the common names, sorted by name and, within a name, by time."""
    rows = [row for row, name in enumerate(names) if name in common]
    return np.array(sorted(rows, key=lambda row: (names[row], row)), np.int64)
