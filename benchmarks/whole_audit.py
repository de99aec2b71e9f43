"""What a whole audit costs: its CPU and wall time beside the plain program's, for as many steps, and
apart from that what it costs to watch the program on this machine, without its rehearsal.

    python benchmarks/whole_audit.py [--steps 50] [--rounds 3] [--only NAME] [FOLDER=TARGET ...]

Without programs: the examples that have an ``expected.toml``. ``FOLDER=TARGET`` adds one (a public
program that was cloned, for instance; arguments of a script follow its name, in quotes). The plain
program is run in turn with the audits: the function called ``steps`` times, or the script as it is
(then the audit's steps are those that it has, so give it arguments that let it run as many). Both
sides count the import of torch. CPU is that of the process and of all that it waited for; the
first finding is the first line of output that names a rule's code. A script that has more steps
than the audit runs them all in its plain run: its ratio is too small.

*Watched* is ``audit run --device cpu``: the main run, judging and pages. What ``audit run`` takes
more is the rehearsal; a program that needs CUDA has no figure for the former.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
CODE = re.compile(rb"\b[A-Z]{2,6}\d{3}\b")
PLAIN = """
import importlib, sys
sys.path.insert(0, "")
step = getattr(importlib.import_module({module!r}), {name!r})
for _ in range({steps}):
    step()
"""


@dataclass(frozen=True)
class Cost:
    """Of one command: seconds; ``first`` is when its first finding was printed, if any was."""

    cpu: float
    wall: float
    first: float | None


def cost_of(command: list[str], folder: Path) -> Cost | None:
    """Run ``command`` in ``folder`` and measure it; None if it had another exit code than 0 and 1."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    first = None
    child = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": ""},
    )
    assert child.stdout is not None
    for line in child.stdout:
        if first is None and CODE.search(line):
            first = time.perf_counter() - began
    if child.wait() not in (0, 1):
        return None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, time.perf_counter() - began, first)


def plain_command(target: str, steps: int) -> list[str]:
    """What runs ``target`` without the audit."""
    words = shlex.split(target)
    if words[0].endswith(".py"):
        return [sys.executable, *words]
    module, _, name = words[0].partition(":")
    return [sys.executable, "-c", PLAIN.format(module=module, name=name, steps=steps)]


def examples() -> dict[str, tuple[Path, str]]:
    """Name -> folder and target of each example."""
    files = sorted((ROOT / "examples").rglob("expected.toml"))
    return {
        str(file.parent.relative_to(ROOT / "examples")): (
            file.parent,
            tomllib.loads(file.read_text())["target"],
        )
        for file in files
    }


def audit_of(target: str, folder: Path, *options: str) -> Cost | None:
    """What an audit of the target costs."""
    program, *arguments = shlex.split(target)
    with tempfile.TemporaryDirectory() as out:
        command = [str(BIN / "audit"), "run", *options, "--out", str(Path(out) / "audit"), program]
        return cost_of([*command, "--", *arguments] if arguments else command, folder)


def middle(values: list[float]) -> str:
    """The median, if there is any value."""
    return f"{statistics.median(values):.1f}" if values else "-"


def spread(values: list[float]) -> str:
    """Median and quartiles."""
    if not values:
        return "-"
    if len(values) < 2:
        return f"{values[0]:.2f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f} [{low:.2f} - {high:.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="*", metavar="FOLDER=TARGET")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="examples whose name has this in it")
    options = parser.parse_args()
    programs = {name: at for name, at in examples().items() if options.only in name}
    if options.programs:
        programs = {}
    for given in options.programs:
        folder, _, target = given.partition("=")
        programs[Path(folder).name] = (Path(folder).resolve(), target)
    print(
        "| program | plain CPU s | watched CPU s | audit CPU s | watched, ratio | audit, ratio ",
        end="",
    )
    print("| wall s | watched wall s | audit wall s | first |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    ratios: tuple[list[float], list[float]] = [], []
    steps = "--steps", str(options.steps)
    for name, (folder, target) in programs.items():
        rounds = [
            (
                cost_of(plain_command(target, options.steps), folder),
                audit_of(target, folder, *steps, "--device", "cpu"),
                audit_of(target, folder, *steps),
            )
            for _ in range(options.rounds)
        ]
        plain, watched, audit = (
            [each for each in kind if each] for kind in zip(*rounds, strict=True)
        )
        if not plain or not audit:
            raise SystemExit(f"{name}: the program or its audit failed")
        each = [
            [cost.cpu / bare.cpu for bare, cost in zip(plain, kind, strict=False)]
            for kind in (watched, audit)
        ]
        for all_of, own in zip(ratios, each, strict=True):
            all_of.extend([statistics.median(own)] if own else [])
        costs = plain, watched, audit
        cells = [
            name,
            *(middle([cost.cpu for cost in kind]) for kind in costs),
            *(spread(own) for own in each),
            *(middle([cost.wall for cost in kind]) for kind in costs),
            middle([cost.first for cost in audit if cost.first is not None]),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
    for what, found in zip(("watching", "the whole audit"), ratios, strict=True):
        print(
            f"\n{what}: {spread(found)} times the plain CPU s, at worst {max(found, default=0):.2f}"
        )


if __name__ == "__main__":
    main()
