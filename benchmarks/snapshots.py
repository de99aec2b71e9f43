"""Memory snapshots: ``audit analyze`` against ``torch.cuda._memory_viz trace_plot`` on the same files, as a Markdown table.

    python benchmarks/snapshots.py FOLDER [--rounds 3]

FOLDER holds snapshots (.pickle, .pickle.gz, .pkl), at any depth. Each command runs in a fresh process, the two in turn;
printed are the median seconds from start to exit, the peak memory of the process, and what we say. ``trace_plot`` reads no
gzip: it gets the unpacked file. What it writes is a page that a browser must still load, with a script from the network.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from auditor.bare_snapshot import SnapshotRecording, is_pickle  # noqa: E402
from auditor.evidence import Allocations  # noqa: E402
from auditor.rule import NotLooked  # noqa: E402

OURS = "from auditor.cli import main; main()"


def run(words: list[str], folder: Path) -> tuple[float, float]:
    """Seconds and peak MiB of a command in a fresh process. Raises :class:`RuntimeError` if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    begun = time.perf_counter()
    child = os.fork()
    if not child:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.chdir(folder)
        os.execve(sys.executable, [sys.executable, *words], environment)
    _, status, used = os.wait4(child, 0)
    if status:
        raise RuntimeError(f"{words} ended with status {status}")
    return time.perf_counter() - begun, used.ru_maxrss / 1024


def measure(path: Path, rounds: int) -> tuple[list[tuple[float, float]], dict[str, object]]:
    """Medians of both commands on one file, ours first, and our report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        raw = folder / "raw.pickle"
        raw.write_bytes(gzip.decompress(path.read_bytes()) if path.read_bytes()[:2] == b"\x1f\x8b" else path.read_bytes())
        ours = ["-c", OURS, "analyze", str(path), "--out", "out", "--quiet"]
        theirs = ["-m", "torch.cuda._memory_viz", "trace_plot", str(raw), "-o", "plot.html"]
        taken: list[list[tuple[float, float]]] = [[], []]
        for _ in range(rounds):
            for number, words in enumerate((ours, theirs)):
                try:
                    taken[number].append(run(words, folder))
                except RuntimeError:
                    taken[number].append((0.0, 0.0))
        medians = [tuple(statistics.median(column) for column in zip(*rows, strict=True)) for rows in taken]
        return medians, json.loads((folder / "out" / "report.json").read_text())


def row(path: Path, rounds: int) -> str:
    """One line of the table."""
    (ours, theirs), report = measure(path, rounds)
    recording = SnapshotRecording(path)
    try:
        course = Allocations.build(recording).devices[0]
        events, peak = f"{len(course.reserved)}", f"{course.peak_allocated / 2**30:.2f} of {course.peak_reserved / 2**30:.2f}"
    except NotLooked:
        events, peak = "0", "-"
    said = ", ".join(sorted({finding["code"] for finding in report["findings"]})) or "-"
    cells = (path.parent.name, events, peak, said, *(f"{s:.2f} s, {m:.0f} MiB" if s > 0 else "fails" for s, m in (ours, theirs)))
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| snapshot | events | peak allocated of reserved, GiB | findings | audit analyze | _memory_viz trace_plot |")
    print("|---|---|---|---|---|---|")
    for path in sorted(each for each in options.folder.rglob("*") if each.is_file() and is_pickle(each)):
        print(row(path, options.rounds), flush=True)


if __name__ == "__main__":
    main()
