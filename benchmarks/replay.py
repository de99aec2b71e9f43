"""How far a replay of a trace with nothing changed is from the trace, and what it says of its waits:

    python benchmarks/replay.py FOLDER... > tables.md

A recording's own short delays (launch to begin, end to begin, end to return) are part of its
replay. So a small error says that threads, queues, streams and waits are understood, and not that
another machine would be predicted. The column "one delay each" takes these away: all launches,
streams and waits have the median delay of the recording. Host times between calls, and the length
of device work, are the recording's in both.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from auditor.errors import AuditProblem
from auditor.model.what_if import Change
from auditor.timeline import Timeline
from auditor.timeline.schedule import Schedule
from auditor.timeline.what_if import Replays, replay


@dataclass(frozen=True)
class Row:
    """One recording. Errors are shares of what was recorded, times us of each step."""

    name: str
    events: int
    calls: int
    steps: int
    recorded_us: float
    error: float
    step: float
    plain: float
    seconds: float
    reason: str
    waits: int = 0
    single_us: float = 0.0
    joint_us: float = 0.0
    old_us: float = 0.0


def main() -> None:
    """Prints both tables and the figures of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    rows = [row for folder in parser.parse_args().folders for row in measured(folder)]
    print(
        "| recording | events | calls | steps | recorded | error | typical step | one delay each |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.name} | {row.events:,} | {row.calls:,} | {row.steps or 'not marked'} | "
            f"{row.recorded_us / 1e3:.2f} ms | {row.error:+.1%} | {row.step:+.1%} | "
            f"{row.plain:+.1%} |"
        )
    print("\n| delays | recordings | median error | within 3 % | within 10 % | within 25 % |")
    print("|---|---|---|---|---|---|")
    print(summary("all as recorded", [row.error for row in rows]))
    print(summary("one each", [row.plain for row in rows]))
    print(f"\nThe longest replay took {max(row.seconds for row in rows):.2f} s.\n")
    for row in rows:
        if row.reason:
            print(f"- not trusted: {row.name}\n  ({row.reason})")
    print("\n| recording | waits | one by one, idle after each | one by one, replayed | together |")
    print("|---|---|---|---|---|")
    for row in rows:
        if row.waits and row.steps and not row.reason:
            times = (row.old_us, row.single_us, row.joint_us)
            said = " | ".join(f"{us:,.0f} us" for us in times)
            print(f"| {row.name} | {row.waits} | {said} |")


def summary(what: str, errors: list[float]) -> str:
    """A row with the figures of all recordings."""
    size = np.abs(np.array(errors))
    shares = " | ".join(f"{(size <= most).mean():.0%}" for most in (0.03, 0.1, 0.25))
    return f"| {what} | {len(size)} | {np.median(size):.1%} | {shares} |"


def measured(folder: Path) -> Iterator[Row]:
    """The recordings below a folder in which a device worked."""
    for path in sorted(folder.rglob("*.json*")):
        try:
            line = Timeline.of(path)
        except AuditProblem:
            continue
        replays = line.replays
        if replays is not None:
            yield row_of(f"{path.parent.name}/{path.name[:24]}", line, replays)


def row_of(name: str, line: Timeline, replays: Replays) -> Row:
    """What is printed of one recording."""
    begun = time.perf_counter()
    whole = replays.unchanged.whole_ns
    seconds = time.perf_counter() - begun
    us = 1e3 * replays.plan.steps
    rows = np.flatnonzero(~line.waits.profiler & (line.waits.step >= 0))
    places: dict[object, list[int]] = {}
    for row in rows.tolist():
        node = int(line.waits.outermost[row]), line.wait_places[row]
        name_of = line.trace.names[line.tree.name[node[0]]] if node[0] >= 0 else ""
        places.setdefault((name_of, node[1]), []).append(row)
    return Row(
        name,
        line.trace.events,
        replays.plan.count,
        line.steps.count if line.steps.marked else 0,
        replays.recorded_ns / us,
        whole / replays.recorded_ns - 1,
        float(np.median(replays.step_errors)),
        replay(plain(replays.plan)).whole_ns / replays.recorded_ns - 1,
        seconds,
        replays.reason,
        len(rows),
        sum(replays.gain([Change("waits", tuple(each))]) for each in places.values()) / us,
        replays.gain([Change("waits", tuple(rows.tolist()))]) / us,
        float(line.wait_prices[rows].sum()) / us,
    )


def plain(plan: Schedule) -> Schedule:
    """The schedule with one delay for all launches, one for all streams and one for all waits."""
    streams, waited = plan.streams, plan.waited
    inside = streams.event >= 0
    waiting = np.array([bool(each) for each in waited.rows])
    between = [distance for each in streams.depends for _, distance in each]
    usual = int(np.median(between)) if between else 0
    return replace(
        plan,
        streams=replace(
            streams,
            lag=np.full_like(streams.lag, np.median(streams.lag[inside])),
            distance=np.full_like(streams.distance, np.median(streams.distance[inside])),
            depends=tuple(tuple((row, usual) for row, _ in each) for each in streams.depends),
        ),
        waited=replace(
            waited,
            late=np.full_like(waited.late, np.median(waited.late[waiting]) if waiting.any() else 0),
        ),
    )


if __name__ == "__main__":
    main()
