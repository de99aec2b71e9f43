"""Judges the same recordings and audits the same programs with two commits, and prints each finding
that differs: the gate for a change that must not change what users see.

    python -m benchmarks.same BASE [--head COMMIT] [--only traces|frozen|live] [--record] [--live N]
                             [--shared FOLDER]

BASE is judged in a work tree of its own; without ``--head`` the other side is this one as it is.
Frozen are the traces and snapshots below ``--shared`` (left out where there is none) and recordings
of programs: the examples, those of benchmarks/real_defects, and those beside this file (compiled,
two ranks, out of memory). They are made once, by BASE, and kept in build/same (``--record`` makes
them anew); ``--only traces`` leaves these out. Live are N programs (ten), audited by both. Findings are
compared by rule, line and severity; prices must be equal in what is frozen, and their intervals must
meet in what is live. Exit code 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.real_defects import pairs

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "same"
SHARED = ROOT.parent / "shared" / "traces" / "data"
STEPS = "20"
AT_ONCE = 2
LIMIT_S = 600
LIVE = 10

Key = tuple[str, str, int, str]


@dataclass(frozen=True)
class Program:
    """A target in its folder, and what ``audit run`` is given beside it."""

    name: str
    folder: Path
    target: str
    more: tuple[str, ...] = ()


def programs() -> Iterator[Program]:
    """Every program that is recorded, the examples first."""
    for path in sorted((ROOT / "examples").rglob("expected.toml")):
        target = re.search(r'^target = "(.+)"', path.read_text(), re.MULTILINE)
        assert target is not None, path
        yield Program("-".join(path.parent.relative_to(ROOT).parts), path.parent, target[1])
    for path in sorted(pairs.PROGRAMS.iterdir()):
        yield Program(path.name, path, pairs.target(path))
    here = Path(__file__).parent
    yield Program("compiled", here, "compiled.py")
    yield Program("ranks", here, "ranks.py", ("--nproc", "2"))
    yield Program("out_of_memory", here, "out_of_memory.py", ("--memory-limit", "64MiB"))


def audit(tree: Path, folder: Path, *words: str) -> None:
    """Run ``audit`` of a work tree; what it prints is not compared."""
    subprocess.run(
        [sys.executable, "-c", "from auditor.cli.main import main; main()", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=LIMIT_S,
    )


def record(tree: Path, program: Program, out: Path) -> dict[str, Any]:
    """Audit a program; what was reported."""
    shutil.rmtree(out, ignore_errors=True)
    words = ("run", program.target, "--steps", STEPS, "--out", str(out), *program.more)
    audit(tree, program.folder, *words)
    return reported(out)


def judge(tree: Path, recording: Path, out: Path) -> dict[str, Any]:
    """Judge what is there; what was reported."""
    shutil.rmtree(out, ignore_errors=True)
    audit(tree, ROOT, "analyze", str(recording), "--out", str(out))
    return reported(out)


def reported(out: Path) -> dict[str, Any]:
    """A report; empty where there is none."""
    path = out / "report.json"
    return json.loads(path.read_text()) if path.exists() else {}


def differences(before: dict[str, Any], after: dict[str, Any], *, exact: bool) -> Iterator[str]:
    """What two reports on one thing do not agree on."""
    if not before or not after:
        sides = (("before", before), ("after", after))
        yield f"no report {' and '.join(side for side, report in sides if not report)}"
        return
    first, second = _by_key(before["findings"]), _by_key(after["findings"])
    yield from (f"gone  {_said(key)}" for key in first if key not in second)
    yield from (f"new   {_said(key)}" for key in second if key not in first)
    for key in first.keys() & second.keys():
        for old, new in zip(first[key], second[key], strict=False):
            if not _same_price(old, new, exact=exact):
                yield f"price {_said(key)}: {_price(old)} before, {_price(new)} after"
    if exact:
        old_verdicts, new_verdicts = (
            {each["code"]: each["status"] for each in report["verdicts"]}
            for report in (before, after)
        )
        for code in old_verdicts.keys() & new_verdicts.keys():
            if old_verdicts[code] != new_verdicts[code]:
                yield f"verdict {code}: {old_verdicts[code]} before, {new_verdicts[code]} after"


def _by_key(findings: Iterable[dict[str, Any]]) -> dict[Key, list[dict[str, Any]]]:
    found: dict[Key, list[dict[str, Any]]] = {}
    for each in findings:
        site = each["site"] or {"file": "", "line": 0}
        key = (each["code"], site["file"], site["line"], each["severity"])
        found.setdefault(key, []).append(each)
    return found


def _same_price(old: dict[str, Any], new: dict[str, Any], *, exact: bool) -> bool:
    if old["basis"] != new["basis"]:
        return False
    if exact:
        return _price(old) == _price(new)
    low, high = zip(_interval(old), _interval(new), strict=True)
    return max(low) <= min(high)


def _interval(finding: dict[str, Any]) -> tuple[float, float]:
    """Between what a price in time lies; without an interval anywhere."""
    low, high = finding["lost_us_per_step_low"], finding["lost_us_per_step_high"]
    return (-float("inf"), float("inf")) if low is None or high is None else (low, high)


def _price(finding: dict[str, Any]) -> str:
    return f"{finding['lost_us_per_step']} us, {finding['lost_bytes']} bytes ({finding['basis']})"


def _said(key: Key) -> str:
    code, file, line, severity = key
    return f"{severity} {code} {file}:{line}"


def tree_of(commit: str) -> Path:
    """A work tree of the commit below build/same, made where it is not there yet."""
    full = subprocess.run(
        ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    tree = KEPT / "trees" / full[:12]
    if not tree.exists():
        tree.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(tree)],
            check=True,
        )
        subprocess.run(["git", "checkout", "--quiet", full], cwd=tree, check=True)
    return tree


def recorded(base: Path, *, anew: bool) -> Iterator[tuple[str, Path]]:
    """Name and recording of each program, made where it is missing."""
    made = KEPT / "recordings"
    waiting = [
        each for each in programs() if anew or not (made / each.name / "report.json").exists()
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number, _ in enumerate(
            pool.map(lambda each: record(base, each, made / each.name), waiting), 1
        ):
            print(f"\r{number} of {len(waiting)} recorded", end="", file=sys.stderr, flush=True)
    yield from ((each.name, made / each.name) for each in programs())


def standing_alone(shared: Path) -> Iterator[tuple[str, Path]]:
    """Name and path of each trace and snapshot."""
    for path in sorted(shared.rglob("*")):
        if path.name.endswith((".json", ".json.gz", ".pickle")):
            yield str(path.relative_to(shared)), path


def compare(
    name: str, before: dict[str, Any], after: dict[str, Any], *, exact: bool
) -> tuple[str, list[str]]:
    """The name, and what differs."""
    return name, list(differences(before, after, exact=exact))


def main() -> int:
    """Compare two commits; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("base")
    parser.add_argument("--head")
    parser.add_argument("--only", choices=("traces", "frozen", "live"))
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--live", type=int, default=LIVE, metavar="N")
    parser.add_argument("--shared", type=Path, default=SHARED)
    given = parser.parse_args()
    base, head = tree_of(given.base), ROOT if given.head is None else tree_of(given.head)
    out = KEPT / "out"
    jobs: list[Any] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        still: list[tuple[str, Path]] = []
        if given.only in (None, "frozen"):
            still.extend(recorded(base, anew=given.record))
        if given.only != "live":
            still.extend(standing_alone(given.shared))
        jobs.extend(
            pool.submit(_judged, name, path, (base, head), out / str(number))
            for number, (name, path) in enumerate(still)
        )
        if given.only in (None, "live"):
            jobs.extend(
                pool.submit(_audited, program, (base, head), out / program.name)
                for program in _alive(given.live)
            )
        differing = 0
        for number, job in enumerate(jobs, 1):
            name, found = job.result()
            print(f"\r{number} of {len(jobs)} compared", end="", file=sys.stderr, flush=True)
            differing += bool(found)
            for each in found:
                print(f"{name}: {each}")
    print(f"{differing} of {len(jobs)} differ", file=sys.stderr)
    return int(differing > 0)


def _alive(number: int) -> list[Program]:
    """So many programs, spread over all that there are."""
    every = list(programs())
    return every[:: max(1, len(every) // number)][:number]


def _judged(name: str, path: Path, trees: tuple[Path, Path], out: Path) -> tuple[str, list[str]]:
    before, after = (judge(tree, path, out / side) for tree, side in zip(trees, "ab", strict=True))
    return compare(name, before, after, exact=True)


def _audited(program: Program, trees: tuple[Path, Path], out: Path) -> tuple[str, list[str]]:
    before, after = (
        record(tree, program, out / side) for tree, side in zip(trees, "ab", strict=True)
    )
    return compare(f"{program.name} (live)", before, after, exact=False)


if __name__ == "__main__":
    sys.exit(main())
