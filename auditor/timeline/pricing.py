"""What a wait costs: the device's idle time after it, which the host would have filled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from auditor.timeline.intervals import groups
from auditor.timeline.trace import Ints

if TYPE_CHECKING:
    from auditor.timeline.timeline import Timeline


@dataclass(frozen=True)
class Prices:
    """Per wait, in ns.

    ``idle_after`` is the time from the wait's end to the end of the call that launched the device's
    next work, where its queue had run dry: the device was idle at the wait's end, and the next work
    was launched only afterwards. From there on the work was queued, and what it waited for is not
    the host. The time ends with the step and with the next wait's end, so that no idle time is
    counted twice and the sum over a step cannot exceed the step.

    ``won_back`` is what the step would gain: without the wait, the host would have come to the next
    launch earlier by the time held, and by no more. Waits in one gap of the device (a copy to the
    host and its synchronisation) share what that gap gives, in proportion to the time each held the
    host. Never more than ``idle_after`` over the gap.
    """

    idle_after: Ints
    won_back: Ints


def prices(line: Timeline, waits: tuple[Ints, Ints]) -> Prices:
    """Prices of ``waits`` (starts, ends) on the device with the most work, or 0."""
    trace, used, steps = line.trace, line.devices, line.steps
    start, end = waits
    if not used or not len(end):
        return Prices(np.zeros(len(end), np.int64), np.zeros(len(end), np.int64))
    busy, work = used[0].busy, trace.work
    rows = used[0].rows[np.argsort(work.start[used[0].rows], kind="stable")]
    # the first busy interval that ends after the wait
    place = np.searchsorted(busy.end, end, side="right")
    coming = np.minimum(place, len(busy.start) - 1)
    # before the first work no queue ran dry
    idle = (place > 0) & (place < len(busy.start)) & (busy.start[coming] > end)
    launch = line.launches.call_of_work[
        rows[np.minimum(np.searchsorted(work.start[rows], end), len(rows) - 1)]
    ]
    known = launch >= 0
    # nothing is known of the launch: the host had all that time
    launched, queued = (end.copy(), busy.start[coming].copy())
    launched[known] = trace.calls.start[launch[known]]
    queued[known] = np.minimum(queued[known], trace.calls.end[launch[known]])
    step = steps.of(start)
    # which wait ends next (of equal ends only the last may claim idle time)
    order = np.argsort(end, kind="stable")
    following = np.empty(len(end), np.int64)
    following[order] = np.concatenate((end[order][1:], [np.iinfo(np.int64).max]))
    stop = np.minimum(queued, following)
    stop[step >= 0] = np.minimum(stop, steps.end[np.maximum(step, 0)])[step >= 0]
    idle_after = np.where(idle & (launched >= end), np.maximum(stop - end, 0), 0)
    # waits that end while the device works stand alone
    gap = np.where(idle, coming, -1 - np.arange(len(end)))
    return Prices(
        idle_after, _won_back(gap * (steps.count + 1) + step, end, end - start, idle_after)
    )


def call_prices(line: Timeline, rows: Ints) -> Ints:
    """What calls that hold the host (rows of :class:`Calls`) made the device idle after them, in
    ns; with its idle time while they ran never more than they took.
    """
    start, end = line.trace.calls.start[rows], line.trace.calls.end[rows]
    if not line.devices:
        return np.zeros(len(rows), np.int64)
    idle = end - start - line.devices[0].busy.covered(start, end)
    result: Ints = np.minimum(end - start - idle, prices(line, (start, end)).won_back)
    return result


def _won_back(gap: Ints, end: Ints, held: Ints, idle: Ints) -> Ints:
    """Of each gap, in time: at no point more than the idle time, or the time held, so far."""
    result = np.zeros(len(end), np.int64)
    for _, together in groups(gap):
        rows = together[np.argsort(end[together], kind="stable")]
        won = total = 0
        for one_held, one_idle in zip(held[rows].tolist(), idle[rows].tolist(), strict=True):
            total += one_held
            won = min(won + one_idle, total)
        result[rows] = [won * one // total if total else 0 for one in held[rows].tolist()]
    return result
