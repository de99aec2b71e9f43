"""torch's own caching allocator and ours, on whole trainings: prints a row for each.

    .venv-cuda/bin/python -m torch_null_device -- .venv-cuda/bin/python -m \
tests.cuda.allocator_beside_torch [quick|kept|examples|every]

By hand: about five minutes of CPU. tests/cuda/test_allocator_held_to_torch.py runs the quick ones.
"""

import sys
import tempfile
from pathlib import Path

from tests.allocator.held import MIB, Held, Recording, held
from tests.cuda.allocator_recorder import SETS, main


def row(recording: Recording, found: Held) -> str:
    """One line of the table."""
    events = [each.action for each in recording.events]
    stats = [recording.name.partition(" [")[0], f"`{recording.settings or 'default'}`"]
    card = recording.total // MIB if recording.total < 1 << 33 else "-"
    stats += [str(card), str(len(events)), str(found.samples), str(found.layouts)]
    stats += [str(events.count("segment_free") + events.count("segment_unmap"))]
    stats += [str(events.count("oom"))]
    stats += [f"{found.peak_allocated / MIB:.1f}", f"{found.peak_reserved // MIB}"]
    return f"| {' | '.join(stats)} | {'yes' if found.difference is None else found.difference} |"


def table(folder: Path) -> int:
    """Records, compares and prints; how many differ."""
    cases = list(SETS[sys.argv[1] if len(sys.argv) > 1 else "every"])
    main(folder, cases)
    differing = 0
    for number in range(len(cases)):
        path = folder / f"{number}.json.gz"
        if not path.exists():
            print(f"{cases[number].name}: not recorded", flush=True)
            differing += 1
            continue
        recording = Recording.read(path)
        found = held(recording)
        differing += found.difference is not None
        print(row(recording, found), flush=True)
    print(f"{len(cases) - differing} of {len(cases)} equal")
    return differing


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        raise SystemExit(table(Path(made)) > 0)
