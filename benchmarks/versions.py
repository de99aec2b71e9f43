"""The table of docs/log/versions.md: what passes with a Python and a torch.

    uv venv --python 3.12 /tmp/tried && uv pip install --python /tmp/tried torch==2.8.0 -e . pytest hypothesis
    OMP_NUM_THREADS=1 python -m benchmarks.versions /tmp/tried/bin/python ...

Each argument is the interpreter of an environment like that. It runs the demo (the broken Energy
Flow trainer: each of its faults at its line, nothing else) and chosen tests: those nearest to what
changes between versions. Its row is written into the page, in the place of the row
of the same pair. With ``--print`` the page stays as it is.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/log/versions.md"
DEMO = ("tests/test_examples.py", "-k", "energy_flow and broken")
CHOSEN = (
    *("tests/test_private_names.py", "tests/timeline/test_torch.py"),
    *("tests/shadow/test_device.py", "tests/capture/test_session.py"),
    *(f"tests/capture/instruments/test_{name}.py" for name in ("torch_private", "user_frames")),
    *(f"tests/capture/probes/graph/test_{name}.py" for name in ("backward", "retained_graphs")),
    "tests/capture/probes/sync/test_reads.py",
    "tests/capture/probes/data/test_dataloader.py",
    "tests/capture/probes/memory/test_snapshot.py",
    "tests/capture/probes/numerics/test_amp.py",
    "tests/capture/probes/optim/test_optimizer_hooks.py",
    "tests/capture/probes/test_operator_stream.py",
    "tests/capture/target/test_tracebacks.py",
)
HEAD = "| torch | Python | demo | chosen tests | what fails |\n|---|---|---|---|---|\n"
LISTED = 4
"""Failures that a row names."""
LIMIT_S = 1500


@dataclass(frozen=True)
class Outcome:
    """What a run of pytest ended in; ``failed`` has names of tests."""

    passed: int
    skipped: int
    failed: tuple[str, ...]

    def __str__(self) -> str:
        words = [f"{self.passed} pass"]
        words += [f"{len(self.failed)} fail"] if self.failed else []
        words += [f"{self.skipped} skipped"] if self.skipped else []
        return ", ".join(words)


def read(junit: str) -> Outcome:
    """The outcome in a JUnit file of pytest's."""
    cases = list(ET.fromstring(junit).iter("testcase"))
    failed = [
        f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return Outcome(len(cases) - len(failed) - skipped, skipped, tuple(failed))


def tried(python: str, *words: str) -> Outcome:
    """Run tests of this checkout with an interpreter of another environment."""
    with TemporaryDirectory() as folder:
        junit = Path(folder) / "junit.xml"
        command = [python, "-m", "pytest", f"--junitxml={junit}", "-p", "no:cacheprovider", *words]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
        if not junit.exists():
            raise SystemExit(f"{python}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return read(junit.read_text("utf-8"))


def versions(python: str) -> tuple[str, str]:
    """Those of torch and of Python."""
    ask = "import platform, torch; print(torch.__version__, platform.python_version())"
    told = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    torch, own = told.stdout.split()
    return torch, own


def row(torch: str, python: str, demo: Outcome, chosen: Outcome) -> str:
    """A line of the table."""
    failed = [*demo.failed, *chosen.failed]
    named = ", ".join(f"`{name}`" for name in failed[:LISTED])
    more = f" and {len(failed) - LISTED} more" if len(failed) > LISTED else ""
    return f"| {torch} | {python} | {demo} | {chosen} | {named}{more} |\n"


def placed(page: str, line: str) -> str:
    """The page with the line in its table, in the order of versions."""
    before, head, rest = page.partition(HEAD)
    if not head:
        raise ValueError(f"no table begins with {HEAD!r}")
    rows = re.match(r"(?:\|.*\n)*", rest)
    assert rows is not None
    kept = [each for each in rows[0].splitlines(keepends=True) if _key(each) != _key(line)]
    return before + head + "".join(sorted([*kept, line], key=_key)) + rest[rows.end() :]


def _key(line: str) -> tuple[list[int], list[int]]:
    torch, python = (cell.strip() for cell in line.split("|")[1:3])
    return [int(n) for n in torch.split("+")[0].split(".")], [int(n) for n in python.split(".")]


def main() -> None:
    """Try each environment that is named on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pythons", nargs="+")
    parser.add_argument("--print", action="store_true", dest="only_print")
    given = parser.parse_args()
    for python in given.pythons:
        line = row(*versions(python), tried(python, *DEMO), tried(python, *CHOSEN))
        sys.stdout.write(line)
        sys.stdout.flush()
        if not given.only_print:
            PAGE.write_text(placed(PAGE.read_text("utf-8"), line), "utf-8")


if __name__ == "__main__":
    main()
