"""What passes with a Python and a torch: docs/new-torch.md, and the table of docs/log/versions.md.

    make new-torch VERSION=2.15.0                  # in an environment of its own, .venv-new-torch
    python -m benchmarks.versions /tmp/tried/bin/python ...

Each argument is the interpreter of an environment that has the auditor and its tests' packages. It
runs the tests of each place that knows a version, in the order in which to look, then the demo (the
broken Energy Flow trainer: each of its faults at its line, nothing else). Its row is written into
the table, in the place of the row of the same pair; with ``--print`` the table stays as it is.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from auditor.judging import catalogue

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/log/versions.md"
DEMO = ("tests/test_examples.py", "-m", "full", "-k", "energy_flow and broken")
SAYS = sorted(rule.code for rule in catalogue.own_rules() if hasattr(rule, "warning"))
PROBES = "tests/capture/probes"
PLACES: Mapping[str, tuple[str, ...]] = {
    "private names": ("tests/capture/instruments/test_torch_private.py",),
    "shadow device": tuple(f"tests/shadow/test_{each}.py" for each in ("device", "zoo")),
    "reads and operators": (f"{PROBES}/sync/test_reads.py", f"{PROBES}/test_operator_stream.py"),
    "hooks": (
        "tests/capture/test_session.py",
        "tests/capture/instruments/test_user_frames.py",
        "tests/capture/target/test_tracebacks.py",
        *(f"{PROBES}/graph/test_{each}.py" for each in ("backward", "retained_graphs")),
        f"{PROBES}/data/test_dataloader.py",
        f"{PROBES}/numerics/test_amp.py",
        f"{PROBES}/optim/test_optimizer_hooks.py",
    ),
    "traces and snapshots": (
        "tests/timeline/test_torch.py",
        f"{PROBES}/step/test_profiler_trace.py",
        f"{PROBES}/memory/test_snapshot.py",
    ),
    "texts of warnings": (
        *("tests/rules/test_rules.py", "tests/rules/test_torch_says.py"),
        *("-k", f"test_torch_says or (Example and ({' or '.join(SAYS)}))"),
    ),
}
"""What knows a version -> the tests that say what is gone, in the order in which to look."""

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


def joined(outcomes: Iterable[Outcome]) -> Outcome:
    """Of several runs."""
    each = list(outcomes)
    failed = tuple(name for one in each for name in one.failed)
    return Outcome(sum(one.passed for one in each), sum(one.skipped for one in each), failed)


def tried(python: str, *words: str) -> Outcome:
    """Run tests of this checkout with an interpreter of another environment."""
    with TemporaryDirectory() as folder:
        junit = Path(folder) / "junit.xml"
        quiet = ("-q", "--tb=short", "--disable-warnings", "-p", "no:cacheprovider")
        command = [python, "-m", "pytest", f"--junitxml={junit}", *quiet, *words]
        env = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=ROOT, env=env, check=False, timeout=LIMIT_S)
        found = read(junit.read_text("utf-8")) if junit.exists() else Outcome(0, 0, ())
        if not found.passed and not found.failed:
            raise SystemExit(f"{python}: no test of {' '.join(words)} ran")
        return found


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
        found = {place: tried(python, *words) for place, words in PLACES.items()}
        demo = tried(python, *DEMO)
        for place, each in {**found, "demo": demo}.items():
            print(f"{place}: {each}")
        line = row(*versions(python), demo, joined(found.values()))
        if not given.only_print:
            PAGE.write_text(placed(PAGE.read_text("utf-8"), line), "utf-8")


if __name__ == "__main__":
    main()
