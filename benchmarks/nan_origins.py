"""Who names the origin of a NaN? Ten planted ones, three tools: module, operator and line, and what
each tool costs.

    OMP_NUM_THREADS=1 python benchmarks/nan_origins.py [--hf PYTHON]

``--hf`` is an interpreter with torch and transformers, for transformers' DebugUnderflowOverflow
(without it that column is left out). Each trainer of ``planted_nans.py`` runs under each tool in a
process of its own; what a tool says is compared with the trainer's ``# born`` line. A tool that
names another line, operator or module is wrong there, whatever else it says. Costs are CPU time of
a launch-bound step, each block of an instrumented kind between two bare ones, medians over the
rounds.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PLANTED = HERE / "planted_nans.py"
STEPS = 8
sys.path[:0] = [str(HERE), str(ROOT)]


@dataclass(frozen=True)
class Named:
    """What a tool said: None where it says nothing of that kind; ``said`` is False if it was silent
    altogether.
    """

    line: int | None = None
    operator: str | None = None
    module: str | None = None
    said: bool = True


# -- the tools, each in a child process ------------------------------------------------------------


def anomaly(name: str) -> Named:
    """torch.autograd.detect_anomaly: the node that returned NaN, and the forward's stack in a
    warning.
    """
    import warnings

    import planted_nans
    import torch

    torch.autograd.set_detect_anomaly(True)
    steps = getattr(planted_nans, name)()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for _ in range(STEPS):
                next(steps)
        except RuntimeError as error:
            node = re.search(r"Function '(\w+?)Backward\d*' returned nan", str(error))
            stack = [
                line
                for each in caught
                for line in re.findall(r'File "(.+?)", line (\d+)', str(each.message))
            ]
            own = [int(line) for file, line in stack if file == planted_nans.__file__]
            return Named(own[-1] if own else None, node[1].lower() if node else None)
    return Named(said=False)


def underflow_overflow(name: str) -> Named:
    """Transformers' DebugUnderflowOverflow: the frames of the last modules; the first that went bad
    is the last one.
    """
    import contextlib
    import io

    import planted_nans
    from transformers.debug_utils import DebugUnderflowOverflow

    planted_nans.ON_MODEL.append(DebugUnderflowOverflow)
    steps, out = getattr(planted_nans, name)(), io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            for _ in range(STEPS):
                next(steps)
        except ValueError:
            frames = re.findall(r"^ {17,}(\S*) (\w+)$", out.getvalue(), re.MULTILINE)
            return Named(module=frames[-1][0] if frames else None)
    return Named(said=False)


CHILDREN = {"anomaly": anomaly, "underflow_overflow": underflow_overflow}


def in_child(python: str, tool: str, name: str) -> Named:
    """Run a tool on a trainer in a fresh interpreter."""
    done = subprocess.run(
        [python, __file__, "--child", tool, name],
        capture_output=True,
        text=True,
        check=False,
        cwd=HERE,
    )
    if done.returncode:
        raise SystemExit(f"{tool} on {name} failed:\n{done.stderr[-2000:]}")
    return Named(**json.loads(done.stdout.splitlines()[-1]))


def ours(name: str) -> Named:
    """``audit run``: the finding NUM002."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "auditor", "run", f"{PLANTED}:{name}"]
        options = f"--select NUM002 --steps {STEPS} --warmup 2 --device cpu --quiet --out".split()
        done = subprocess.run(
            [*command, *options, f"{folder}/out"],
            capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
        report = Path(folder) / "out" / "report.json"
        if not report.is_file():
            raise SystemExit(f"audit on {name} failed:\n{done.stderr[-2000:]}")
        return _of_report(json.loads(report.read_text(encoding="utf-8")))


def _of_report(report: dict[str, Any]) -> Named:
    if not report["findings"]:
        return Named(said=False)
    finding = report["findings"][0]
    facts = dict(finding["facts"])
    node = re.match(
        r"(\w+)Backward\d", facts.get("autograd node", "")
    )  # of a function of the user's: what ran in it
    operator = node[1].lower() if node else facts.get("operator")
    return Named((finding["site"] or {}).get("line"), operator, facts.get("module"))


# -- the table -------------------------------------------------------------------------------------


def marks(truth: Any, line: int, named: Named) -> tuple[str, str, str]:
    """``yes``, ``no`` or ``-`` (says nothing) for module, operator and line."""
    if not named.said:
        return ("silent",) * 3
    module = (
        "yes"
        if (named.module or "") == truth.module
        else "-"
        if not named.module
        else f"no ({named.module})"
    )
    operator = (
        "-"
        if named.operator is None
        else "yes"
        if named.operator == truth.operator
        else f"no ({named.operator})"
    )
    at = "-" if named.line is None else "yes" if named.line == line else f"no ({named.line})"
    return ("-" if not truth.module and not named.module else module), operator, at


def table(hf: str | None) -> None:
    """Run all and print."""
    import planted_nans

    tools = ["ours", *(["DebugUnderflowOverflow"] if hf else []), "detect_anomaly"]
    right = {tool: [0, 0, 0] for tool in tools}
    print(
        "| planted NaN | " + " | ".join(f"{tool}: module, operator, line" for tool in tools) + " |"
    )
    print("|---|" + "---|" * len(tools))
    for name, truth in planted_nans.TRUTH.items():
        line = planted_nans.born_line(name)
        named = {"ours": ours(name), "detect_anomaly": in_child(sys.executable, "anomaly", name)}
        if hf:
            named["DebugUnderflowOverflow"] = in_child(hf, "underflow_overflow", name)
        cells = {tool: marks(truth, line, named[tool]) for tool in tools}
        for tool, cell in cells.items():
            right[tool] = [
                total + (mark == "yes") for total, mark in zip(right[tool], cell, strict=True)
            ]
        print(
            f"| {name} ({truth.operator}) | "
            + " | ".join(", ".join(cells[tool]) for tool in tools)
            + " |",
            flush=True,
        )
    inside = sum(bool(truth.module) for truth in planted_nans.TRUTH.values())
    of = (inside, len(planted_nans.TRUTH), len(planted_nans.TRUTH))
    print(
        "| right | "
        + " | ".join(
            ", ".join(f"{n} of {m}" for n, m in zip(right[t], of, strict=True)) for t in tools
        )
        + " |"
    )


def main() -> None:
    """Parse, then be a child or print the tables."""
    parser = argparse.ArgumentParser(description="who names the origin of a NaN, and at what cost")
    parser.add_argument("--hf", help="interpreter with torch and transformers")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of the cost measurement")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        named = CHILDREN[args.child[0]](args.child[1])
        print(json.dumps(vars(named)))
        return
    table(args.hf)
    import nan_watch_cost

    nan_watch_cost.table(args.hf, args.rounds)


if __name__ == "__main__":
    main()
