"""What the manual's doors cost: ``audit --help`` and ``audit explain SYNC001`` against ``python -c
pass``.

    python benchmarks/light_doors.py [--rounds 9] [--audit ARGUMENTS]

CPU seconds (user + system) of each process, from ``wait4``, so that a busy machine disturbs little;
the commands take turns, and the median of the rounds is printed as a ratio to the bare interpreter.
Then one more run of each door under ``-X importtime`` tells which of the heavy packages it
imported. Nothing is asserted here: the tests do that.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HEAVY = ("torch", "pandas", "numpy", "plotly")
ROOT = Path(__file__).resolve().parent.parent
CONSOLE_SCRIPT = "-c 'from auditor.cli.main import main; main()'"
DOORS = {"audit --help": ("--help",), "audit explain SYNC001": ("explain", "SYNC001")}


@dataclass(frozen=True)
class Cost:
    """CPU seconds of one process (user + system) and how it ended (0 = well, negative = the signal
    that killed it).
    """

    seconds: float
    status: int


def cost_of(command: list[str]) -> Cost:
    """Run ``command`` from the checkout, its output thrown away."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Cost(used.ru_utime + used.ru_stime, process.returncode)


def heavy_imports(command: list[str]) -> list[str]:
    """Heavy packages that ``command`` (a Python interpreter with its arguments) imports."""
    timed = [command[0], "-X", "importtime", *command[1:]]
    # A line of the listing is "import time: self [us] | cumulative | package.module".
    listing = subprocess.run(
        timed, cwd=ROOT, capture_output=True, text=True, check=False
    ).stderr.splitlines()
    modules = [
        line.rsplit("|", 1)[1].strip() for line in listing if line.startswith("import time:")
    ]
    loaded = {module.partition(".")[0] for module in modules}
    return [name for name in HEAVY if name in loaded]


def measure(commands: dict[str, list[str]], rounds: int) -> dict[str, list[Cost]]:
    """Costs of every command in ``rounds`` rounds, taken in turns after one round that only warms
    the file cache.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            cost = cost_of(command)
            if turn:
                costs[name].append(cost)
    return costs


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description="CPU cost of the light commands against a bare interpreter"
    )
    parser.add_argument(
        "--rounds", type=int, default=9, help="measured rounds, after one that warms up"
    )
    parser.add_argument(
        "--audit",
        default=CONSOLE_SCRIPT,
        help="arguments that make the interpreter the audit command",
    )
    args = parser.parse_args()

    bare = [sys.executable, "-c", "pass"]
    doors = {
        name: [sys.executable, *shlex.split(args.audit), *words] for name, words in DOORS.items()
    }
    costs = measure({"python -c pass": bare, **doors}, args.rounds)
    floor = statistics.median(cost.seconds for cost in costs["python -c pass"])

    print(f"{'command':24} {'CPU ms':>8} {'ratio':>7}  imports of {', '.join(HEAVY)}")
    for name, found in costs.items():
        seconds = statistics.median(cost.seconds for cost in found)
        imports = ", ".join(heavy_imports(doors[name])) or "none" if name in doors else ""
        failed = sorted({cost.status for cost in found if cost.status})
        note = f"  FAILED with {failed}: its cost means nothing" if failed else ""
        print(f"{name:24} {seconds * 1e3:8.1f} {seconds / floor:7.2f}  {imports}{note}")


if __name__ == "__main__":
    main()
