"""Whether waits stand in the same order of price where the kernels' times are predicted from shapes:

    python benchmarks/wait_order.py FOLDER

Each recording below FOLDER is replayed twice with its own host: with the recorded lengths of its
kernels, and with the predicted ones. Each place that waits is priced by itself in both, and the
joint price of all waits as well. Kendall's tau-b of the two orders counts recordings with at least
three places. Copies, collectives and kernels without shapes keep their recorded lengths. The
numbers that predict were fitted on these recordings, too: nothing is left out here.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import sqrt
from pathlib import Path
from statistics import median

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import forecast_recordings as recorded  # noqa: E402

from auditor.errors import AuditProblem  # noqa: E402
from auditor.extensions.forecast.model import call_us  # noqa: E402
from auditor.model.what_if import Change  # noqa: E402
from auditor.timeline import Timeline  # noqa: E402
from auditor.timeline.replay.what_if import Replays  # noqa: E402

LEAST = 3
"""Places that wait, below which an order says nothing."""
Key = tuple[str, int]
"""A kernel by its name and its length in ns."""


@dataclass(frozen=True)
class Row:
    """One recording: prices of its places in us per step, by recorded and by predicted kernels."""

    name: str
    predicted: float
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    joint: tuple[float, float]

    @property
    def tau(self) -> float | None:
        """None where an order says nothing: too few places, or all of one price."""
        return kendall(self.theirs, self.ours) if len(self.ours) >= LEAST else None


def kendall(one: tuple[float, ...], other: tuple[float, ...]) -> float | None:
    """Tau-b; differences below a nanosecond are ties."""
    pairs = list(combinations(range(len(one)), 2))
    left = [int(np.sign(round(one[i] - one[j], 3))) for i, j in pairs]
    right = [int(np.sign(round(other[i] - other[j], 3))) for i, j in pairs]
    scale = sqrt(sum(map(abs, left)) * sum(map(abs, right)))
    return sum(a * b for a, b in zip(left, right, strict=True)) / scale if scale else None


def factors(path: Path) -> dict[Key, float]:
    """Predicted over recorded time of each kernel that an operator with shapes started."""
    document = recorded._document(path)
    events = document if isinstance(document, list) else document.get("traceEvents", [])
    sheet = recorded._sheet({} if isinstance(document, list) else document, f"{path.parent.name}/")
    found: dict[Key, list[float]] = defaultdict(list)
    owned = recorded._owned(events)[0] if sheet is not None else []
    for owner in owned:
        (row,) = tuple(recorded._rows([owner])) or (None,)
        if row is None or row.counts is None or sheet is None or row.us <= 0:
            continue
        us = call_us(row.counts, sheet)
        for time, name in owner.names:
            found[name, round(time * 1e3)].append(us / row.us if us else 1.0)
    return {key: median(each) for key, each in found.items()}


def measured(path: Path) -> Row | None:
    """None where there is nothing to compare."""
    line = Timeline.of(path)
    replays = line.replays
    if replays is None or replays.reason or not line.steps.marked:
        return None
    rows = np.flatnonzero(~line.waits.profiler & (line.waits.step >= 0))
    places: dict[object, list[int]] = defaultdict(list)
    for row in rows.tolist():
        node = int(line.waits.outermost[row])
        name = line.trace.names[line.tree.name[node]] if node >= 0 else ""
        places[name, line.wait_places[row]].append(row)
    shorter = factors(path)
    if not places or not shorter:
        return None
    streams, trace = replays.plan.streams, line.trace
    length = streams.end - streams.start
    keys = [
        (trace.names[name], int(ns))
        for name, ns in zip(trace.work.name[streams.work].tolist(), length.tolist(), strict=True)
    ]
    factor = np.array([shorter.get(key, 0.0) for key in keys])
    known = factor > 0
    made = np.where(known, length * np.where(known, factor, 1.0), length).astype(np.int64)
    end = streams.start + made
    plan = replace(replays.plan, streams=replace(streams, end=end))
    other = Replays(plan, replays.costs)
    us = 1e3 * replays.plan.steps
    changes = [Change("waits", tuple(each)) for each in places.values()]
    return Row(
        f"{path.parent.name}/{path.name[:24]}",
        float(length[known].sum() / max(1, length.sum())),
        tuple(other.gain([change]) / us for change in changes),
        tuple(replays.gain([change]) / us for change in changes),
        (other.gain(changes) / us, replays.gain(changes) / us),
    )


def each(folder: Path) -> Iterator[Row]:
    """The recordings below a folder in which something waits."""
    for path in sorted(folder.rglob("*.json*")):
        try:
            row = measured(path)
        except AuditProblem:
            continue
        if row is not None:
            yield row


def main() -> None:
    """Prints the table and the figures of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    rows = list(each(parser.parse_args().folder))
    print("| recording | predicted share | places | tau | together, predicted | recorded |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        tau = "-" if row.tau is None else f"{row.tau:.2f}"
        ours, theirs = row.joint
        print(
            f"| {row.name} | {row.predicted:.0%} | {len(row.ours)} | {tau} | {ours:,.0f} us | "
            f"{theirs:,.0f} us |",
            flush=True,
        )
    taus = [row.tau for row in rows if row.tau is not None]
    joint = [row.joint for row in rows if row.joint[1] >= 1e3 and row.predicted >= 0.9]
    near = sum(abs(ours / theirs - 1) <= 0.25 for ours, theirs in joint)
    print(f"\nTau: median {median(taus):.2f} of {len(taus)} recordings.")
    print(f"Joint price within 25 %: {near} of {len(joint)} (at least 1 ms, 90 % predicted).")


if __name__ == "__main__":
    main()
