"""What the steps of a trace are made of, as a report draws it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from auditor import amounts
from auditor.model.charts import Bar, Parts, Tone
from auditor.timeline.intervals import union
from auditor.timeline.naming import BACKWARD_MARK, is_communication, mask
from auditor.timeline.phases import that_count
from auditor.timeline.steps import Steps
from auditor.timeline.timeline import Timeline
from auditor.timeline.trace import KERNEL, Flags, Ints

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

SLOW = 1.3
"""Times the median from which the slowest step is drawn beside the mean of all."""


def step_parts(line: Timeline) -> Parts | None:
    """Shares of the mean step on host and device, and of the slowest where it stands out; None
    where no steps are marked.
    """
    steps = line.steps
    if not steps.marked or not steps.count:
        return None
    length = (steps.end - steps.start) / 1e3
    sides = [("host", _shares(_host_parts(line), steps, OTHER))]
    if line.devices:
        sides.append(("device", _shares(_device_parts(line), steps, IDLE)))
    names: list[str] = []
    bars: list[Bar] = []
    for title, pick in _picked(length):
        for side, shares in sides:
            bars += list(_laid(len(names), [(tone, pick(us)) for tone, us in shares]))
            names.append(f"{title}: {side}")
    return Parts(
        title="What the steps are made of",
        note=f"{_which(length, steps)} Each moment counts once: waiting "
        "first, then optimizer, backward, other operators.",
        rows=tuple(names),
        tones=TONES,
        bars=tuple(bars),
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
Covers = list[tuple[int, tuple[Ints, Ints]]]


def _picked(length: Floats) -> Iterator[tuple[str, Picker]]:
    yield ("mean" if len(length) > 1 else "step"), lambda us: float(us.mean())
    slowest = _slowest(length)
    if slowest >= 0:
        yield "slowest", lambda us: float(us[slowest])


def _slowest(length: Floats) -> int:
    slowest = int(length.argmax())
    return slowest if len(length) > 2 and length[slowest] > SLOW * float(np.median(length)) else -1


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


def _host_parts(line: Timeline) -> Covers:
    """What the host did, the most telling first."""
    spans, tones, waits, calls = line.trace.operators, phases(line), line.waits, line.trace.calls
    rows, held = outermost(line), ~waits.profiler
    loading = rows[tones[rows] == LOADER]
    loading = loading[spans.thread[loading] == line.main_thread]
    parts: Covers = [
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


def _device_parts(line: Timeline) -> Covers:
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


def _shares(parts: Covers, steps: Steps, rest: int) -> list[tuple[int, Floats]]:
    """Us of each step that a part covers and no earlier part does; ``rest`` is what is left."""
    start, end = np.empty(0, np.int64), np.empty(0, np.int64)
    before = np.zeros(steps.count, np.int64)
    shares = []
    for tone, (begin, stop) in parts:
        start, end = np.append(start, begin), np.append(end, stop)
        covered = union(start, end).covered(steps.start, steps.end)
        shares.append((tone, (covered - before) / 1e3))
        before = covered
    return [*shares, (rest, (steps.end - steps.start - before) / 1e3)]


def _laid(row: int, shares: list[tuple[int, float]]) -> Iterator[Bar]:
    total, place = sum(us for _, us in shares) or 1.0, 0.0
    for tone, us in shares:
        if us > 0:
            yield Bar(row, place, us, tone, f"{TONES[tone].name}, {amounts.percent(us / total)}")
            place += us
