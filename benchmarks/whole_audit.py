"""What a whole audit costs: its CPU and wall time beside the plain program's, for as many steps.

    python benchmarks/whole_audit.py [--steps 50] [--rounds 3] [--only NAME] [FOLDER=TARGET ...]

Without programs: the examples that have an ``expected.toml``. ``FOLDER=TARGET`` adds one (a public
program that was cloned, for instance; arguments of a script follow its name, in quotes). The plain
program is run in turn with the audit: the function called ``steps`` times, or the script as it is
(then the audit's steps are those that it has, so give it arguments that let it run as many). Both
sides count the import of torch. CPU is that of the process and of all that it waited for; the
first finding is the first line of output that names a rule's code. A script that has more steps
than the audit runs them all in its plain run: its ratio is too small.
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


def cost_of(command: list[str], folder: Path) -> Cost:
    """Run ``command`` in ``folder`` and measure it.

    Raises:
        SystemExit: it could not be started, was killed, or had another exit code than 0 and 1.

    """
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
        raise SystemExit(f"{shlex.join(command)} ended with {child.returncode}")
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


def spread(values: list[float]) -> str:
    """Median and quartiles."""
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
    print("| program | plain CPU s | audit CPU s | CPU ratio | wall s | audit wall s | first |")
    print("|---|---|---|---|---|---|---|")
    ratios = []
    for name, (folder, target) in programs.items():
        pairs = []
        for _ in range(options.rounds):
            plain = cost_of(plain_command(target, options.steps), folder)
            with tempfile.TemporaryDirectory() as out:
                words = shlex.split(target)
                command = [str(BIN / "audit"), "run", "--steps", str(options.steps)]
                command += ["--out", str(Path(out) / "audit"), words[0]]
                command += ["--", *words[1:]] if words[1:] else []
                pairs.append((plain, cost_of(command, folder)))
        each = [audit.cpu / plain.cpu for plain, audit in pairs]
        ratios.append(statistics.median(each))
        firsts = [audit.first for _, audit in pairs if audit.first is not None]
        print(
            f"| {name} | {statistics.median(plain.cpu for plain, _ in pairs):.1f} "
            f"| {statistics.median(audit.cpu for _, audit in pairs):.1f} | {spread(each)} "
            f"| {statistics.median(plain.wall for plain, _ in pairs):.1f} "
            f"| {statistics.median(audit.wall for _, audit in pairs):.1f} "
            f"| {f'{statistics.median(firsts):.1f}' if firsts else '-'} |",
            flush=True,
        )
    print(f"\nCPU ratio over the programs: {spread(ratios)}, at worst {max(ratios):.2f}")


if __name__ == "__main__":
    main()
