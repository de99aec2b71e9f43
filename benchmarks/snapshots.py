"""Memory snapshots: ``audit analyze`` against ``torch.cuda._memory_viz trace_plot`` on the same
files, as a Markdown table.

    python benchmarks/snapshots.py FOLDER [--rounds 3]

FOLDER holds snapshots (.pickle, .pickle.gz, .pkl), at any depth. Each command runs in a fresh
process, the two in turn, once before any is measured: an installed package has its bytecode, and a
checkout may not. Printed are medians: seconds from start until our findings stand on the terminal,
and of both until the process has exited, by the clock and of the processor; the peak memory of the
process; what we say. ``trace_plot`` reads no gzip: it gets the unpacked file. What it writes is a
page that a browser must still load, with a script from the network.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from auditor.evidence.snapshot.history import Allocations  # noqa: E402
from auditor.evidence.table import Evidence  # noqa: E402
from auditor.recordings.standalone import SnapshotRecording, is_pickle  # noqa: E402
from auditor.rule import NotLooked  # noqa: E402

OURS = "from auditor.cli.main import main; main()"


class Taken(NamedTuple):
    """Of one process: seconds by the clock and of the processor until its first line of output,
    until its end; peak MiB.
    """

    first: float
    first_cpu: float
    whole: float
    whole_cpu: float
    mebibytes: float


def run(words: list[str], folder: Path, bytecode: Path) -> Taken:
    """A command in a fresh process. Raises :class:`RuntimeError` if it fails."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "PYTHONPYCACHEPREFIX": str(bytecode),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    process.stdout.readline()
    first, first_cpu = time.perf_counter() - begun, _processor(process.pid)
    process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = status
    if status:
        raise RuntimeError(f"{words} ended with status {status}")
    return Taken(
        first,
        first_cpu,
        time.perf_counter() - begun,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss / 1024,
    )


def _processor(pid: int) -> float:
    """Seconds of the processor that a process has had so far; 0 where the system does not tell, or
    the process has ended.
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def measure(
    path: Path, rounds: int, bytecode: Path
) -> tuple[Taken | None, Taken | None, dict[str, Any]]:
    """Medians of both commands on one file, ours first (None where it failed), and our report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        raw = folder / "raw.pickle"
        raw.write_bytes(
            gzip.decompress(path.read_bytes())
            if path.read_bytes()[:2] == b"\x1f\x8b"
            else path.read_bytes()
        )
        ours = ["-c", OURS, "analyze", str(path), "--out", "out"]
        theirs = ["-m", "torch.cuda._memory_viz", "trace_plot", str(raw), "-o", "plot.html"]
        taken: list[list[Taken]] = [[], []]
        for _ in range(rounds + 1):
            for number, words in enumerate((ours, theirs)):
                with contextlib.suppress(RuntimeError):
                    taken[number].append(run(words, folder, bytecode))
        medians = [
            Taken(*map(statistics.median, zip(*rows[1:], strict=True))) if rows[1:] else None
            for rows in taken
        ]
        return medians[0], medians[1], json.loads((folder / "out" / "report.json").read_text())


def row(path: Path, rounds: int, bytecode: Path) -> str:
    """One line of the table."""
    ours, theirs, report = measure(path, rounds, bytecode)
    evidence = Evidence(SnapshotRecording(path))
    try:
        course = evidence.get(Allocations).devices[0]
        events, peak = (
            f"{len(course.reserved)}",
            f"{course.peak_allocated / 2**30:.2f} of {course.peak_reserved / 2**30:.2f}",
        )
    except NotLooked:
        events, peak = "0", "-"
    said = ", ".join(sorted({finding["code"] for finding in report["findings"]})) or "-"
    answered = f"{ours.first:.2f} ({ours.first_cpu:.2f})" if ours else "fails"
    return (
        "| "
        + " | ".join((path.parent.name, events, peak, said, answered, _whole(ours), _whole(theirs)))
        + " |"
    )


def _whole(taken: Taken | None) -> str:
    return (
        f"{taken.whole:.2f} ({taken.whole_cpu:.2f}), {taken.mebibytes:.0f} MiB"
        if taken
        else "fails"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("Seconds by the clock (of the processor), and peak memory:\n")
    print(
        "| snapshot | events | peak allocated of reserved, GiB | findings | ours: findings shown | "
        "ours: all | trace_plot |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as bytecode:
        for path in sorted(
            each for each in options.folder.rglob("*") if each.is_file() and is_pickle(each)
        ):
            print(row(path, options.rounds, Path(bytecode)), flush=True)


if __name__ == "__main__":
    main()
