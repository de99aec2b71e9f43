"""Where the host waits for a device: how long, by which operator, at which line, at what cost."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from auditor.timeline.device import Launches
from auditor.timeline.intervals import groups
from auditor.timeline.naming import (
    BACKWARD_MARK,
    DEVICE_WIDE,
    is_async_copy,
    is_blocking,
    is_launch,
    mask,
    plain,
)
from auditor.timeline.steps import Steps
from auditor.timeline.trace import MEMSET, Flags, Ints, Small, Trace
from auditor.timeline.tree import CallTree

if TYPE_CHECKING:
    from auditor.timeline.timeline import Timeline


CAUSES = (
    "item",
    "nonzero",
    "copy to host",
    "copy to device",
    "copy on device",
    "copy",
    "other operator",
    "explicit",
)
ITEM, NONZERO, COPY_TO_HOST, COPY_TO_DEVICE, COPY_ON_DEVICE, COPY, OTHER, EXPLICIT = range(
    len(CAUSES)
)

ITEM_OPERATORS = frozenset({"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"})
NONZERO_OPERATORS = frozenset(
    {
        "aten::nonzero",
        "aten::masked_select",
        "aten::unique",
        "aten::_unique2",
        "aten::nonzero_numpy",
        "aten::unique_dim",
        "aten::unique_consecutive",
    }
)


@dataclass(frozen=True)
class Waits:
    """Calls that held the host until a device had got there, in file order.

    These are the synchronise calls, synchronous copies, and asynchronous copies from or to pageable
    memory. Columns of one length; ``operator`` and the two around it are rows of :class:`CallTree`
    (-1: none).
    """

    call: Ints
    """Row of :class:`Calls`."""
    start: Ints
    end: Ints
    cause: Small
    """Index into :data:`CAUSES`, by the innermost operator around the call."""
    operator: Ints
    """Innermost operator around the call."""
    outermost: Ints
    """Outermost operator around the call: what the user called."""
    synchronises: Flags
    """Whether the call itself is a synchronisation; False for copies that block because their
    memory is pageable.
    """
    backward: Flags
    """Whether the wait is in a backward pass."""
    profiler: Flags
    """The profiler's own waits when it starts and stops: never the user's doing."""
    step: Ints
    """Step in which the wait starts, -1 outside."""
    prices: Prices

    @property
    def held(self) -> Ints:
        """Time that the host was held, in ns."""
        return self.end - self.start

    def cause_name(self, row: int, trace: Trace, tree: CallTree) -> str:
        """The cause in words, with the operator's name where the kind alone says too little."""
        kind = CAUSES[int(self.cause[row])]
        return (
            f"{kind} {trace.names[tree.name[self.operator[row]]]}"
            if self.cause[row] == OTHER
            else kind
        )


def waits(line: Timeline) -> Waits:
    """Where the host waited for a device, why, and what it cost."""
    trace, tree, joined, steps = line.trace, line.tree, line.launches, line.steps
    calls = trace.calls
    copy = joined.copy_of_call
    pageable = mask(trace.names, trace.work.name, lambda name: "Pageable" in name)
    blocking = mask(trace.names, calls.name, is_blocking)
    slow_copy = mask(trace.names, calls.name, is_async_copy) & (copy >= 0)
    slow_copy[slow_copy] = pageable[copy[slow_copy]]
    call = np.flatnonzero(blocking | slow_copy)
    node = call + tree.operators
    cause, operator = _causes(trace, tree, joined, call)
    start, end = calls.start[call], calls.end[call]
    step = steps.of(start)
    return Waits(
        call=call,
        start=start,
        end=end,
        cause=cause,
        operator=operator,
        outermost=tree.outermost(node, _operator_rows(trace, tree)),
        synchronises=blocking[call],
        backward=tree.nearest(
            node, mask(trace.names, tree.name, lambda name: name.startswith(BACKWARD_MARK))
        )
        >= 0,
        profiler=_profilers(trace, call, cause, steps),
        step=step,
        prices=prices(line, (start, end)),
    )


def _operator_rows(trace: Trace, tree: CallTree) -> Flags:
    """Rows of a cause's operators: dispatched names, no annotations or autograd wrappers."""

    def recognised(name: str) -> bool:
        return name.startswith(("aten::", "torch_")) or (
            "::" in name and not name.startswith("autograd::")
        )

    rows = mask(trace.names, tree.name, recognised)
    rows[tree.operators :] = False
    return rows


def _causes(trace: Trace, tree: CallTree, joined: Launches, call: Ints) -> tuple[Small, Ints]:
    """Cause of each wait, and the operator that it was read from."""
    operator = tree.nearest(call + tree.operators, _operator_rows(trace, tree))
    name = [
        trace.names[code] if row >= 0 else ""
        for row, code in zip(operator, tree.name[operator], strict=True)
    ]
    cause = np.full(len(call), OTHER, np.int8)
    cause[operator < 0] = EXPLICIT
    cause[[one in ITEM_OPERATORS for one in name]] = ITEM
    cause[[one in NONZERO_OPERATORS for one in name]] = NONZERO
    copying = np.flatnonzero([one == "aten::copy_" for one in name])
    direction = _directions(trace, tree, joined)
    own = np.where(
        joined.copy_of_call[call[copying]] >= 0, direction[call[copying] + tree.operators], -1
    )
    cause[copying] = np.where(own >= 0, own, direction[operator[copying]])
    return cause, operator


def _directions(trace: Trace, tree: CallTree, joined: Launches) -> Small:
    """The cause that each row's copy would be: a call's own, ``aten::copy_``'s last inside."""
    by_name = np.array([_direction(name) for name in trace.names] or [COPY], np.int8)
    result = np.full(len(tree.name), COPY, np.int8)
    copying = np.flatnonzero(
        (joined.copy_of_call >= 0)
        & mask(trace.names, trace.calls.name, lambda name: "emcpy" in name)
    )
    copying = copying[np.argsort(trace.calls.start[copying], kind="stable")]
    kind = by_name[trace.work.name[joined.copy_of_call[copying]]]
    result[copying + tree.operators] = kind
    around = tree.nearest(
        copying + tree.operators, mask(trace.names, tree.name, lambda name: name == "aten::copy_")
    )
    result[around[around >= 0]] = kind[around >= 0]
    return result


def _direction(name: str) -> int:
    return next(
        (
            kind
            for key, kind in (
                ("DtoH", COPY_TO_HOST),
                ("HtoD", COPY_TO_DEVICE),
                ("DtoD", COPY_ON_DEVICE),
            )
            if key in name
        ),
        COPY,
    )


def _profilers(trace: Trace, call: Ints, cause: Small, steps: Steps) -> Flags:
    """The profiler's own waits: it synchronises the device when it starts, and once when it stops.

    These are device-wide waits under no operator: those before the first operator of the trace and
    outside its marked steps, and the last one of the trace if no operator and no launch follows it.
    (A user's own is then the last but one.)
    """
    alone = mask(trace.names, trace.calls.name[call], lambda name: plain(name) in DEVICE_WIDE) & (
        cause == EXPLICIT
    )
    starts = trace.operators.start[~trace.operators.annotation]
    if not alone.any() or not len(starts):
        return np.zeros(len(call), np.bool_)
    working = mask(
        trace.names, trace.calls.name, lambda name: is_launch(name) or is_async_copy(name)
    )
    busy_until = max(starts.max(), trace.calls.start[working].max(initial=starts.max()))
    start = trace.calls.start[call]
    at_stop = (start == start[alone].max()) & (start > busy_until)
    at_start = (start < starts.min()) & ~(steps.marked & (steps.of(start) >= 0))
    result: Flags = alone & (at_start | at_stop)
    return result


# -- memsets ---------------------------------------------------------------------------------------
# Memsets that held the host, and how that is known.


SYNCHRONOUS_MEMORY = re.compile(r"^[^(]*\((Pinned|Managed|Unified)\)")
"""Memory whose memset is fully synchronous with the host (CUDA runtime API, "API synchronization
behavior").
"""


def waiting_memsets(line: Timeline) -> Ints:
    """Calls of memsets without ``Async`` in their name that write memory of the synchronous kinds,
    or that were seen to wait.

    Seen means: the device was working when the host called, and the call returned only after the
    memset was done.
    """
    trace, joined = line.trace, line.launches
    calls, work = trace.calls, trace.work
    rows = np.flatnonzero(
        mask(trace.names, calls.name, lambda name: "emset" in name and "Async" not in name)
    )
    rows = rows[joined.work_of_call[rows] >= 0]
    made = joined.work_of_call[rows]
    rows, made = rows[work.kind[made] == MEMSET], made[work.kind[made] == MEMSET]
    start = calls.start[rows]
    working = line.busy.covered(start, start + 1) > 0
    seen = working & (calls.end[rows] >= work.end[made]) & (work.start[made] > start)
    synchronous = mask(trace.names, work.name[made], SYNCHRONOUS_MEMORY.search)
    found: Ints = rows[seen | synchronous]
    return found


# -- prices ----------------------------------------------------------------------------------------


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
