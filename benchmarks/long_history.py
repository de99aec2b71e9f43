"""A long allocation history, made up: what reading, judging, each chart and the page take, against
``_memory_viz trace_plot``.

    python benchmarks/long_history.py [events ...]

Steps of a program with 500 activations and 100 temporaries of 290 lines, stacks of 36 frames, an
optimizer that was seen at each step. Seconds of the processor; the last three columns are those of
snapshots.py.
"""

from __future__ import annotations

import pickle
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from auditor.allocator import CachingAllocator  # noqa: E402
from auditor.evidence.snapshot.by_line import layers, told  # noqa: E402
from auditor.evidence.snapshot.by_purpose import told_by_purpose  # noqa: E402
from auditor.evidence.snapshot.file import snapshot_of  # noqa: E402
from auditor.evidence.snapshot.history import Allocations  # noqa: E402
from auditor.evidence.snapshot.owners import Owners  # noqa: E402
from auditor.evidence.snapshot.segments import origins_of  # noqa: E402
from auditor.evidence.snapshot.unpickle import no_collections  # noqa: E402
from auditor.evidence.table import Evidence  # noqa: E402
from auditor.recordings.standalone import SnapshotRecording  # noqa: E402
from benchmarks.snapshots import row  # noqa: E402

EVENTS = (50_000, 100_000, 150_000)
WEIGHTS, MIB = 100, 2**20


class Watched(SnapshotRecording):
    """A snapshot with the marks of an optimizer that stepped between the steps."""

    owners: list[dict[str, Any]]

    def has(self, part: str) -> bool:
        """Only the marks."""
        return part == "owners"

    def rows(self, part: str) -> list[dict[str, Any]]:
        """The marks."""
        return self.owners if part == "owners" else []


def stack(line: int) -> tuple[dict[str, Any], ...]:
    """34 frames of a library around two of the program."""
    some = random.Random(line)
    library = [
        {"filename": f"/x/site-packages/torch/nn/m{some.randrange(200)}.py", "line": 1, "name": "f"}
        for _ in range(34)
    ]
    own = {"filename": "/home/u/train.py", "line": line, "name": f"layer{line}"}
    return (
        *library[:20],
        own,
        *library[20:],
        {"filename": "/home/u/main.py", "line": 5, "name": "main"},
    )


def made(events: int) -> tuple[CachingAllocator, list[dict[str, Any]]]:
    """The history, and what an optimizer's steps showed."""
    allocator, owners, chance, now = CachingAllocator(1 << 40), [], random.Random(0), 0
    stacks = {line: stack(line) for line in range(400)}
    weights = [
        allocator.malloc(chance.randrange(1, 12) * MIB, 0, stacks[line], 0)
        for line in range(WEIGHTS)
    ]
    count = WEIGHTS
    while count < events:
        owners.append({"what": "step", "time_us": now, "addresses": []})
        live = [
            allocator.malloc(chance.randrange(1, 40) * MIB // 4, 0, stacks[100 + n % 250], now + n)
            for n in range(500)
        ]
        live += [
            allocator.malloc(chance.randrange(1, 64) * 1024, 0, stacks[350 + n % 40], now + 500 + n)
            for n in range(100)
        ]
        owners.append({"what": "parameter", "time_us": now + 601, "addresses": weights})
        for number, address in enumerate(reversed(live)):
            allocator.free(address, now + 602 + number)
        now, count = now + 2000, count + 3 * len(live)
    return allocator, owners


def seconds(what: Callable[[], Any]) -> tuple[float, Any]:
    """Of the processor, and what came of it."""
    begun = time.process_time()
    found = what()
    return time.process_time() - begun, found


def charts(path: Path, owners: list[dict[str, Any]]) -> tuple[float, float]:
    """What the two views of memory over time take."""
    recording = Watched(path)
    recording.owners = owners
    evidence = Evidence(recording)
    with no_collections():
        data, (course,), origins = (
            snapshot_of(evidence),
            evidence.get(Allocations).devices,
            origins_of(evidence),
        )
        by_line, _ = seconds(lambda: layers(told(data, course, origins), [], note=""))
        by_purpose, purposes = seconds(lambda: told_by_purpose(data, course, Owners(evidence)))
        drawing, _ = seconds(lambda: layers(purposes, [], note="", by="purpose"))
    return by_line, by_purpose + drawing


def main() -> None:
    """Print the table."""
    print(
        "| events | chart by line | chart by purpose | ours: findings shown | ours: all | "
        "trace_plot |"
    )
    print("|---|---|---|---|---|---|")
    for events in [int(word) for word in sys.argv[1:]] or EVENTS:
        with tempfile.TemporaryDirectory() as name:
            allocator, owners = made(events)
            path = Path(name) / "history.pickle"
            path.write_bytes(pickle.dumps(allocator.snapshot()))
            by_line, by_purpose = charts(path, owners)
            cells = row(path, 1, Path(name) / "bytecode").split(" | ")
            print(
                " | ".join((f"| {cells[1]}", f"{by_line:.2f}", f"{by_purpose:.2f}", *cells[4:])),
                flush=True,
            )


if __name__ == "__main__":
    main()
