"""What a report draws of a trace: one step by lanes of host threads, loader, waits and streams; and
what the steps are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from auditor import amounts
from auditor.model.charts import Bar, Lanes, Tone
from auditor.timeline.bars import Spans, Window, bars
from auditor.timeline.device import DeviceUse
from auditor.timeline.intervals import union
from auditor.timeline.naming import BACKWARD_MARK, is_communication, mask
from auditor.timeline.phases import that_count
from auditor.timeline.steps import Steps
from auditor.timeline.timeline import Timeline
from auditor.timeline.trace import KERNEL, Codes, Flags, Ints

FORWARD, BACKWARD, OPTIMIZER, LOADER, WAIT, KERNELS, COPIES, COLLECTIVES, OTHER, IDLE = range(10)
TONES = (
    Tone("forward and other operators", 1),
    Tone("backward", 2),
    Tone("optimizer", 7),
    Tone("waiting for the loader", 5),
    Tone("host waits for the device", 6),
    Tone("kernels", 4),
    Tone("copies and memsets", 8),
    Tone("collectives", 9),
    Tone("Python, and what the trace does not show", -1),
    Tone("device idle", 0),
)

THREADS, STREAMS, LANES = 5, 10, 60
"""Lanes of threads and of each device's streams at most, those with most work; and lanes in all."""

MOSTLY = 0.9
"""Share of a thread's time from which it is named after its kind of work."""

SLOW = 1.3
"""Times the median from which the slowest step is drawn beside the mean of all."""


def window(line: Timeline) -> Window | None:
    """The median step, the first left out where there are others; the whole trace where it marks
    none.
    """
    steps = line.steps
    if not steps.count:
        return None
    length = steps.end - steps.start
    later = np.arange(1 if steps.count > 2 else 0, steps.count)
    chosen = int(later[np.argsort(length[later], kind="stable")[len(later) // 2]])
    name = (
        f"{steps.names[chosen]}, "
        f"{'the only step' if steps.count == 1 else f'the median of {steps.count} steps'}"
        if steps.marked
        else "the whole trace: it marks no steps"
    )
    return (
        Window(name, int(steps.start[chosen]), int(steps.end[chosen]))
        if length[chosen] > 0
        else None
    )


def step_timeline(line: Timeline) -> Lanes | None:
    """The lanes of one step; None where the trace shows nothing in it."""
    chosen = window(line)
    lanes = list(islice(_lanes(line, chosen), LANES)) if chosen is not None else []
    if chosen is None or not lanes:
        return None
    return Lanes(
        kind="timeline",
        title="One step by lanes",
        note=f"{chosen.name}, under the profiler, which slows the host.",
        unit="us",
        lanes=tuple(spans.lane for spans in lanes),
        tones=TONES,
        bars=tuple(bars(lanes, chosen, line.trace.names)),
        total=sum(len(spans.start) for spans in lanes),
        codes=("KERN", "TIME"),
    )


def _lanes(line: Timeline, chosen: Window) -> Iterator[Spans]:
    yield from _host(line, chosen)
    spans, waits = line.trace.operators, line.waits
    if line.loader is not None:
        rows = line.loader.rows
        yield from _cut(
            chosen,
            Spans(
                "loader",
                spans.start[rows],
                spans.end[rows],
                np.full(len(rows), LOADER),
                spans.name[rows],
            ),
        )
    own = ~waits.profiler
    names = line.trace.calls.name[waits.call[own]]
    yield from _cut(
        chosen,
        Spans("host waits", waits.start[own], waits.end[own], np.full(len(names), WAIT), names),
    )
    work = line.trace.work
    collective = mask(line.trace.names, work.name, is_communication)
    tone = np.where(work.kind == KERNEL, np.where(collective, COLLECTIVES, KERNELS), COPIES)
    for use in line.devices:
        yield from _streams(line, use, tone, chosen)


def _host(line: Timeline, chosen: Window) -> Iterator[Spans]:
    """Each thread's outermost operators and phases."""
    rows = outermost(line)
    spans, tones = line.trace.operators, phases(line)
    rows = rows[tones[rows] != LOADER]
    main: list[Spans] = []
    others: list[Spans] = []
    for thread, mine in _busiest(
        spans.thread, rows, (spans.start, spans.end), chosen, most=THREADS, first=line.main_thread
    ):
        title = "main thread" if thread == line.main_thread else _thread(line, thread, mine, tones)
        lane = main if thread == line.main_thread else others
        lane += list(
            _cut(
                chosen,
                Spans(title, spans.start[mine], spans.end[mine], tones[mine], spans.name[mine]),
            )
        )
    yield from (main + others)[:THREADS]


def _busiest(
    keys: Ints | Codes,
    rows: Ints,
    times: tuple[Ints, Ints],
    chosen: Window,
    *,
    most: int,
    first: int = -1,
) -> list[tuple[int, Ints]]:
    """The rows of the ``most`` keys that have most time in the window, the busiest first; those of
    ``first`` before all.
    """
    start, end = times
    rows = rows[(end[rows] > chosen.start) & (start[rows] < chosen.end)]
    known, place = np.unique(keys[rows], return_inverse=True)
    spent = np.bincount(
        place, weights=np.minimum(end[rows], chosen.end) - np.maximum(start[rows], chosen.start)
    )
    order = np.lexsort((known, -spent, known != first))[:most]
    return [(int(known[number]), rows[place == number]) for number in order.tolist()]


def _thread(line: Timeline, thread: int, rows: Ints, tones: Ints) -> str:
    took = line.trace.operators.end[rows] - line.trace.operators.start[rows]
    backward = took[tones[rows] == BACKWARD].sum() > MOSTLY * took.sum()
    return "backward thread" if backward else f"thread {line.trace.threads[thread].tid}"


def _streams(line: Timeline, use: DeviceUse, tone: Ints, chosen: Window) -> Iterator[Spans]:
    work = line.trace.work
    for stream, rows in _busiest(
        work.stream, use.rows, (work.start, work.end), chosen, most=STREAMS
    ):
        title = f"gpu {use.device} stream {stream}"
        yield from _cut(
            chosen, Spans(title, work.start[rows], work.end[rows], tone[rows], work.name[rows])
        )


def outermost(line: Timeline) -> Ints:
    """Rows of operators and phases that lie in no other."""
    tree = line.tree
    wanted = np.zeros(len(tree.name), np.bool_)
    wanted[: tree.operators] = that_count(line.trace)
    rows = np.flatnonzero(wanted)
    result: Ints = rows[tree.nearest(rows, wanted) < 0]
    return result


def phases(line: Timeline) -> Ints:
    """For each row of operators its phase: an index of :data:`TONES`."""
    spans, names = line.trace.operators, line.trace.names
    backward = (spans.forward_thread > 0) | mask(
        names, spans.name, lambda name: name.startswith(BACKWARD_MARK)
    )
    result = np.where(backward, BACKWARD, FORWARD)
    result[mask(names, spans.name, lambda name: name.startswith("Optimizer."))] = OPTIMIZER
    result[mask(names, spans.name, lambda name: name.startswith("enumerate(DataLoader)"))] = LOADER
    return result


def _cut(chosen: Window, spans: Spans) -> Iterator[Spans]:
    """Those that reach into the window, cut to it; nothing where none does."""
    inside = np.flatnonzero((spans.end > chosen.start) & (spans.start < chosen.end))
    if len(inside):
        order = inside[np.argsort(spans.start[inside], kind="stable")]
        low, high = (
            np.maximum(spans.start[order], chosen.start),
            np.minimum(spans.end[order], chosen.end),
        )
        yield Spans(spans.lane, low, high, spans.tone[order], spans.name[order])


# -- what the steps are made of --------------------------------------------------------------------


def step_parts(line: Timeline) -> Lanes | None:
    """Shares of the mean step on host and device, and of the slowest where it stands out; None
    where no steps are marked.
    """
    steps = line.steps
    if not steps.marked or not steps.count:
        return None
    length = (steps.end - steps.start) / 1e3
    rows = [("host", _shares(_host_parts(line), steps, OTHER))]
    if line.devices:
        rows.append(("device", _shares(_device_parts(line), steps, IDLE)))
    lanes: list[str] = []
    bars: list[Bar] = []
    for title, pick in _picked(length):
        for side, shares in rows:
            bars += list(_laid(len(lanes), [(tone, pick(us)) for tone, us in shares]))
            lanes.append(f"{title}: {side}")
    return Lanes(
        kind="parts",
        title="What the steps are made of",
        note=f"{_which(length, steps)} Each moment counts once: waiting "
        "first, then optimizer, backward, other operators.",
        unit="us",
        lanes=tuple(lanes),
        tones=TONES,
        bars=tuple(bars),
        total=len(bars),
        codes=("DATA", "KERN001", "TIME", "DIST"),
    )


def _which(length: Floats, steps: Steps) -> str:
    mean = (
        f"The mean of {len(length)} steps under the profiler"
        if len(length) > 1
        else "One step under the profiler"
    )
    slowest = _slowest(length)
    return f"{mean}, and the slowest, {steps.names[slowest]}." if slowest >= 0 else f"{mean}."


Floats = NDArray[np.float64]
Picker = Callable[[Floats], float]
Parts = list[tuple[int, tuple[Ints, Ints]]]


def _picked(length: Floats) -> Iterator[tuple[str, Picker]]:
    yield ("mean" if len(length) > 1 else "step"), lambda us: float(us.mean())
    slowest = _slowest(length)
    if slowest >= 0:
        yield "slowest", lambda us: float(us[slowest])


def _slowest(length: Floats) -> int:
    """The slowest step where it stands out, else -1."""
    slowest = int(length.argmax())
    return slowest if len(length) > 2 and length[slowest] > SLOW * float(np.median(length)) else -1


def _host_parts(line: Timeline) -> Parts:
    """What the host did, the most telling first."""
    spans, tones, waits, calls = line.trace.operators, phases(line), line.waits, line.trace.calls
    rows, held = outermost(line), ~waits.profiler
    loading = rows[tones[rows] == LOADER]
    loading = loading[spans.thread[loading] == line.main_thread]
    parts: Parts = [
        (LOADER, (spans.start[loading], spans.end[loading])),
        (WAIT, (waits.start[held], waits.end[held])),
    ]
    for tone in (OPTIMIZER, BACKWARD):
        mine = rows[tones[rows] == tone]
        parts.append((tone, (spans.start[mine], spans.end[mine])))
    rest = rows[(tones[rows] == FORWARD) & (spans.thread[rows] == line.main_thread)]
    mine = calls.thread == line.main_thread
    parts.append(
        (
            FORWARD,
            (
                np.append(spans.start[rest], calls.start[mine]),
                np.append(spans.end[rest], calls.end[mine]),
            ),
        )
    )
    return parts


def _device_parts(line: Timeline) -> Parts:
    """What the busiest device did; a copy or collective counts where no kernel ran."""
    use, work = line.devices[0], line.trace.work
    kind, collective = (
        work.kind[use.rows],
        mask(line.trace.names, work.name, is_communication)[use.rows],
    )

    def of(rows: Flags) -> tuple[Ints, Ints]:
        return work.start[use.rows[rows]], work.end[use.rows[rows]]

    computing = (kind == KERNEL) & ~collective
    return [
        (KERNELS, of(computing)),
        (COLLECTIVES, of(collective)),
        (COPIES, of(~computing & ~collective)),
    ]


def _shares(parts: Parts, steps: Steps, rest: int) -> list[tuple[int, Floats]]:
    """Time in us of each step that a part covers and no earlier part does; ``rest`` is what none
    covers.
    """
    start, end = np.empty(0, np.int64), np.empty(0, np.int64)
    before = np.zeros(steps.count, np.int64)
    shares = []
    for tone, (begin, stop) in parts:
        start, end = np.append(start, begin), np.append(end, stop)
        covered = union(start, end).covered(steps.start, steps.end)
        shares.append((tone, (covered - before) / 1e3))
        before = covered
    return [*shares, (rest, (steps.end - steps.start - before) / 1e3)]


def _laid(lane: int, shares: list[tuple[int, float]]) -> Iterator[Bar]:
    total, place = sum(us for _, us in shares) or 1.0, 0.0
    for tone, us in shares:
        if us > 0:
            yield Bar(lane, place, us, tone, f"{TONES[tone].name}, {amounts.percent(us / total)}")
            place += us
