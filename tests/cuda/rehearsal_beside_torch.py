"""The rehearsal's memory beside that of torch's own CUDA code: the same program on the shadow (the
CUDA build of torch, its device hidden) and on the null device.

    .venv-cuda/bin/python -m tests.cuda.rehearsal_beside_torch [--shadow PYTHON] [program ...]

prints the peak of each and how far their allocations are the same ones in the same order. ``--shadow
.venv/bin/python`` rehearses with another build of torch.
"""

import argparse
import difflib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
GPU = "H200"
"""The model that a rehearsal takes where none is named."""
CHOSEN = ("small", "gpt", "accumulation", "convolutions", "streams", "nano_gpt")


@dataclass(frozen=True)
class Side:
    """One side: (``+`` or ``-``, bytes) in order, the marks' places in it, peaks in bytes."""

    torch: str
    events: list[tuple[str, int]]
    marks: list[int]
    peak_allocated: int
    peak_reserved: int
    workspaces: int = 0


def alike(real: Side, rehearsed: Side) -> list[float]:
    """For each stretch between marks the share of events that both have in the same order."""
    found = []
    cuts = [[0, *side.marks] for side in (real, rehearsed)]
    for place in range(min(map(len, cuts)) - 1):
        one, other = (
            side.events[cut[place] : cut[place + 1]]
            for side, cut in zip((real, rehearsed), cuts, strict=True)
        )
        found.append(difflib.SequenceMatcher(None, one, other, autojunk=False).ratio())
    return found


def measure(kind: str, program: str, python: str = sys.executable) -> Side:
    """Runs one side in a process of its own."""
    from auditor import null_device

    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    if kind == "real":
        env.update(null_device.environment(GPU))
    else:
        env["CUDA_VISIBLE_DEVICES"] = ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "side.json"
        command = [python, "-W", "ignore", "-m", "tests.cuda.rehearsal_beside_torch"]
        done = subprocess.run(
            [*command, "--side", kind, str(path), program],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if not path.exists():
            raise RuntimeError(f"{program} on {kind} failed:\n{done.stderr[-2000:]}")
        found = json.loads(path.read_text())
    found["events"] = [tuple(event) for event in found["events"]]
    return Side(**found)


def _rows(trace: list[dict[str, Any]]) -> list[tuple[str, int]]:
    signs = {"alloc": "+", "free_completed": "-"}
    return [(signs[each["action"]], each["size"]) for each in trace if each["action"] in signs]


def _real(program: str) -> Side:
    import torch

    from tests.cuda.allocator_programs import PROGRAMS

    torch.manual_seed(0)
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=1 << 40)
    marks: list[int] = []

    def trace() -> list[tuple[str, int]]:
        return _rows(torch.cuda.memory._snapshot()["device_traces"][0])

    PROGRAMS[program](lambda: marks.append(len(trace())))
    return _side(torch.__version__, trace(), marks, torch.cuda.memory_stats())


def _rehearsed(program: str) -> Side:
    import torch

    from auditor.capture.instruments.user_frames import Frames
    from auditor.capture.probes.base import Context
    from auditor.capture.probes.rehearsal import RehearsalProbe
    from auditor.model.devices import SHADOW
    from auditor.recordings.folder import RecordingWriter

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        writer = RecordingWriter(Path(folder))
        frames = Frames(writer, (str(ROOT / "tests"),))
        probe = RehearsalProbe(Context(writer, frames, device=SHADOW))
        probe.install()
        from tests.cuda.allocator_programs import PROGRAMS

        marks: list[int] = []

        def trace() -> list[tuple[str, int]]:
            found = probe.memory.snapshot()
            return _rows(found["device_traces"][0]) if found is not None else []

        PROGRAMS[program](lambda: marks.append(len(trace())))
        taken = len(probe.memory.workspaces)
        side = _side(torch.__version__, trace(), marks, probe.memory.stats(), taken)
        probe.uninstall()
        writer.close()
    return side


def _side(version, events, marks, stats, workspaces=0):
    return Side(
        str(version),
        events,
        marks,
        stats["allocated_bytes.all.peak"],
        stats["reserved_bytes.all.peak"],
        workspaces,
    )


def row(program: str, real: Side, rehearsed: Side) -> str:
    """One line of the table."""
    mib = 1 << 20
    cells = [program, rehearsed.torch, str(rehearsed.workspaces)]
    for name in ("peak_allocated", "peak_reserved"):
        theirs, ours = getattr(real, name), getattr(rehearsed, name)
        cells += [f"{theirs / mib:.1f}", f"{ours / mib:.1f}", f"{100 * (ours / theirs - 1):+.2f} %"]
    steps = alike(real, rehearsed)
    cells += [f"{len(real.events)}, {len(rehearsed.events)}"]
    cells += [f"{100 * sum(steps) / max(1, len(steps)):.0f} %"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """The table, or one side of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", nargs=2)
    parser.add_argument("--shadow", default=sys.executable)
    parser.add_argument("programs", nargs="*", default=list(CHOSEN))
    options = parser.parse_args()
    if options.side:
        kind, path = options.side
        side = (_real if kind == "real" else _rehearsed)(options.programs[0])
        Path(path).write_text(json.dumps(vars(side)))
        return
    for program in options.programs:
        real = measure("real", program)
        rehearsed = measure("rehearsed", program, options.shadow)
        print(row(program, real, rehearsed), flush=True)


if __name__ == "__main__":
    main()
