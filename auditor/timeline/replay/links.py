"""What each event of the host follows: the one before it on its thread, or one of another thread
that handed over (a backward pass runs on a thread of its own while the loop's thread waits).
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush

import numpy as np

from auditor.timeline.trace import Ints


def host_links(start: Ints, end: Ints, thread: Ints, since: Ints) -> tuple[Ints, Ints, Ints]:
    """(event before on the same thread, event that it follows, time between that one's end and its
    start) for events in order of their start; -1 without one, and then the time counts from the
    first event's start.

    An event follows the one of its thread that ended last, unless another thread's ended after that
    one and before its own thread was busy again (``since`` is the begin of the outermost operator
    around each event): nothing else tells in a trace that one thread went on when another was done.
    """
    before, after = np.full(len(start), -1), np.full(len(start), -1)
    last_of: dict[int, int] = {}
    running: list[tuple[int, int]] = []
    over: list[int] = []
    over_at: list[int] = []
    starts, ends, threads = start.tolist(), end.tolist(), thread.tolist()
    for row, (begin, busy) in enumerate(zip(starts, since.tolist(), strict=True)):
        while running and running[0][0] <= begin:
            ended, latest = heappop(running)
            over.append(latest)
            over_at.append(ended)
            last_of[threads[latest]] = latest
        before[row] = follows = last_of.get(threads[row], -1)
        place = bisect_right(over_at, busy) - 1
        if place >= 0 and (follows < 0 or ends[follows] < over_at[place]):
            follows = over[place]
        after[row] = follows
        heappush(running, (ends[row], row))
    first = int(start[0]) if len(start) else 0
    gap = start - np.where(after >= 0, end[after], first) if len(start) else start
    return before, after, gap
