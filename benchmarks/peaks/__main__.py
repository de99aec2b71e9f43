"""Peaks of training steps on the null device, beside what others measured on real GPUs.

    python benchmarks/peaks --python PYTHON [--python OTHER] [--shadow CPU_PYTHON]
                            [--only WORD] [--results FILE]

Each ``--python`` is an interpreter with a CUDA build of torch and what requirements.txt names. The
first runs every program; the others run those that were measured with their version of torch.
``--shadow`` is one with a CPU build, for rehearsals of what is small enough. ``--results`` keeps
the figures, so that a later run measures only what is not in the file; delete it to measure anew.
The table is printed in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from published import GB, GIB, MIB, PUBLISHED, Published

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIMIT_SECONDS = 1200
TOLERANCE = 0.02
SHADOW = "rehearsal"
UNITS = {GIB: "GiB", MIB: "MiB", GB: "GB"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", required=True)
    parser.add_argument("--shadow")
    parser.add_argument("--only", default="", help="rows whose text has this word")
    parser.add_argument("--results", type=Path)
    chosen = parser.parse_args()
    known: dict[str, Any] = {}
    if chosen.results and chosen.results.exists():
        kept = json.loads(chosen.results.read_text())
        known = {key: found for key, found in kept.items() if "error" not in found}
    versions = {python: version_of(python) for python in chosen.python}
    main_version = versions[chosen.python[0]]
    rows = [row for row in PUBLISHED if chosen.only in row.what]
    for row in rows:
        wanted = {
            key_of(row, version): null_command(python, row)
            for python, version in versions.items()
            if version in {main_version, row.torch}
        }
        if chosen.shadow and row.small:
            rehearsed = str(HERE / "rehearsed.py")
            wanted[key_of(row, SHADOW)] = [chosen.shadow, rehearsed, row.gpu, *row.program]
        for key in wanted.keys() - known.keys():
            known[key] = figures(wanted[key])
            print(f"{key}: {known[key]}", file=sys.stderr, flush=True)
            if chosen.results:
                chosen.results.write_text(json.dumps(known, indent=1))
    print_table(rows, known, main_version)


def null_command(python: str, row: Published) -> list[str]:
    program = [python, str(HERE / row.program[0]), *row.program[1:]]
    memory = ["--memory-gib", str(row.memory_gib)] if row.memory_gib else []
    return [python, "-m", "torch_null_device", "--gpu", row.gpu, *memory, "--", *program]


def version_of(python: str) -> str:
    """Of torch there, without the build: ``2.14.1``."""
    tell = "import importlib.metadata as m; print(m.version('torch').split('+')[0])"
    return subprocess.run(
        [python, "-c", tell], check=True, capture_output=True, text=True
    ).stdout.strip()


def key_of(row: Published, version: str) -> str:
    return " ".join((version, row.gpu, *row.program))


def figures(command: list[str]) -> dict[str, Any]:
    """What the program printed, bytes; ``error`` where it did not get so far.

    How it ended says nothing: torch's autograd thread may still let go of a Python object while
    the interpreter ends, which aborts the process on Python before 3.14.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done in {LIMIT_SECONDS} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"error": done.stderr[-600:], "returned": done.returncode}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def print_table(rows: list[Published], known: dict[str, Any], version: str) -> None:
    print(
        "| program | GPU | measured | published | its torch | null device, that torch | "
        f"null device, {version} | rehearsal |"
    )
    print("|---" * 8 + "|")
    within = total = 0
    links = list(dict.fromkeys(row.link for row in rows))
    for row in rows:
        results = [
            known.get(key_of(row, row.torch), {}),
            known.get(key_of(row, version), {}),
            known.get(key_of(row, SHADOW), {}),
        ]
        kind = "allocated" if row.measured == "median" else row.measured
        cells = [
            row.what,
            row.gpu,
            kind,
            f"[{row.printed} {UNITS[row.unit]}][peak{links.index(row.link)}]",
            row.torch or "not said",
            *(cell(row, found) for found in results),
        ]
        print(f"| {' | '.join(cells)} |")
        best = results[0] or results[1]
        if row.measured in best:
            total += 1
            within += abs(best[row.measured] / row.bytes - 1) <= TOLERANCE
    print(f"\n{within} of {total} within {100 * TOLERANCE:.0f} %.\n")
    for number, link in enumerate(links):
        print(f"[peak{number}]: {link}")


def cell(row: Published, found: dict[str, Any]) -> str:
    """``6.627 (+0.00 %)`` in the row's unit; nothing where it was not measured."""
    if row.measured not in found:
        return "failed" if found else ""
    ours = found[row.measured]
    digits = len(row.printed.partition(".")[2])
    return f"{ours / row.unit:.{digits}f} ({100 * (ours / row.bytes - 1):+.2f} %)"


if __name__ == "__main__":
    main()
