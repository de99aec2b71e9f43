"""A long allocation history, made up: what reading, judging, its chart and the page take, against
``_memory_viz trace_plot``.

    python benchmarks/long_history.py [events ...]

Steps of a program with 500 activations and 100 temporaries of 290 lines, stacks of 36
frames. Seconds of the processor; the last three columns are those of
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
from auditor.evidence.snapshot.file import no_collections, snapshot_of  # noqa: E402
from auditor.evidence.snapshot.history import Allocations  # noqa: E402
from auditor.evidence.snapshot.state_at import origins_of  # noqa: E402
from auditor.evidence.table import Evidence  # noqa: E402
from auditor.recordings.standalone import SnapshotRecording  # noqa: E402
from benchmarks.snapshots import row  # noqa: E402

EVENTS = (50_000, 100_000, 150_000)
WEIGHTS, MIB = 100, 2**20


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


def made(events: int) -> CachingAllocator:
    """The history."""
    allocator, chance, now = CachingAllocator(1 << 40), random.Random(0), 0
    stacks = {line: stack(line) for line in range(400)}
    for line in range(WEIGHTS):
        allocator.malloc(chance.randrange(1, 12) * MIB, 0, stacks[line], 0)
    count = WEIGHTS
    while count < events:
        live = [
            allocator.malloc(chance.randrange(1, 40) * MIB // 4, 0, stacks[100 + n % 250], now + n)
            for n in range(500)
        ]
        live += [
            allocator.malloc(chance.randrange(1, 64) * 1024, 0, stacks[350 + n % 40], now + 500 + n)
            for n in range(100)
        ]
        for number, address in enumerate(reversed(live)):
            allocator.free(address, now + 602 + number)
        now, count = now + 2000, count + 3 * len(live)
    return allocator


def seconds(what: Callable[[], Any]) -> tuple[float, Any]:
    """Of the processor, and what came of it."""
    begun = time.process_time()
    found = what()
    return time.process_time() - begun, found


def chart(path: Path) -> float:
    """What memory over time takes."""
    evidence = Evidence(SnapshotRecording(path))
    with no_collections():
        data, (course,), origins = (
            snapshot_of(evidence),
            evidence.get(Allocations).devices,
            origins_of(evidence),
        )
        return seconds(lambda: layers(told(data, course, origins), [], note=""))[0]


def main() -> None:
    """Print the table."""
    print("| events | chart | ours: findings shown | ours: all | trace_plot |")
    print("|---|---|---|---|---|")
    for events in [int(word) for word in sys.argv[1:]] or EVENTS:
        with tempfile.TemporaryDirectory() as name:
            allocator = made(events)
            path = Path(name) / "history.pickle"
            path.write_bytes(pickle.dumps(allocator.snapshot()))
            drawn = chart(path)
            cells = row(path, 1, Path(name) / "bytecode").split(" | ")
            print(" | ".join((f"| {cells[1]}", f"{drawn:.2f}", *cells[4:])), flush=True)


if __name__ == "__main__":
    main()
