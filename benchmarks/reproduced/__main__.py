"""Does ``audit reproduce`` name the line and the cause? Programs with one planted cause each, their
repaired twins, and programs that only look as if they could not be repeated.

    python -m benchmarks.reproduced [--kept FOLDER] [name ...]

``truth.json`` was written before any run, by authors who had read nothing of this project: the
cause, and the lines where the runs come apart or where a person would repair it. At the line is
what names one of these: the operator's line, the line that drew or read, or one of those (at most
three) that may be to blame. ``--kept`` keeps what was printed in ``FOLDER/NAME__bad.json`` and
``__ok.json``, and runs no program again that has one there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).with_name("programs")
LOOKED_AT = 3
CAUSES = {"own generator": (), "addresses": ()}
"""What the command gives as ``causes`` for a cause that nothing can hold."""


def reproduced(folder: Path) -> dict[str, Any]:
    """What the command prints of the program in a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    command = [sys.executable, "-m", "auditor", "reproduce", "train.py", "--format", "json"]
    done = subprocess.run(
        [*command, "--quiet"],
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{folder.name}: {done.stderr}")
    return json.loads(done.stdout)


def run(program: Path, *, repaired: bool) -> dict[str, Any]:
    """Run it, or its twin, in a copy."""
    with tempfile.TemporaryDirectory() as where:
        copy = Path(where) / program.name
        shutil.copytree(program, copy, ignore=shutil.ignore_patterns("__pycache__"))
        if repaired:
            subprocess.run(["git", "apply", "repaired.diff"], cwd=copy, check=True)
        return reproduced(copy)


def kept(file: Path | None, program: Path, *, repaired: bool) -> dict[str, Any]:
    """What the program showed, from the file if there is one."""
    if file is not None and file.exists():
        return json.loads(file.read_text())
    said = run(program, repaired=repaired)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(said))
    return said


def named(said: dict[str, Any]) -> list[str]:
    """The lines that it names."""
    places = [said["first"], said.get("source"), *said.get("to_blame", [])[:LOOKED_AT]]
    return [f"{each['file']}:{each['line']}" for each in places if each and each["file"]]


def main() -> None:
    """Print a row a program, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kept", type=Path)
    parser.add_argument("names", nargs="*")
    words = parser.parse_args()
    programs = sorted(each for each in PROGRAMS.iterdir() if (each / "truth.json").exists())
    planted = at_line = right = false = alike = 0
    print("| program | what is not the same | the line | the cause | twin |\n|---|---|---|---|---|")
    for program in programs:
        if words.names and program.name not in words.names:
            continue
        truth = json.loads((program / "truth.json").read_text())
        file = words.kept and words.kept / f"{program.name}__bad.json"
        said = kept(file, program, repaired=False)
        if not truth["lines"]:
            alike, false = alike + 1, false + (not said["alike"])
            print(f"| `{program.name}` | nothing | | | {'alike' if said['alike'] else 'differs'} |")
            continue
        file = words.kept and words.kept / f"{program.name}__ok.json"
        twin = kept(file, program, repaired=True)
        lines = [] if said["alike"] else named(said)
        hit = next((line for line in lines if line in truth["lines"]), "")
        causes = CAUSES.get(truth["cause"], (truth["cause"],))
        known = not said["alike"] and tuple(said["causes"]) == causes
        planted, at_line, right = planted + 1, at_line + bool(hit), right + known
        alike, false = alike + 1, false + (not twin["alike"])
        where = f"`{hit}`" if hit else "alike" if said["alike"] else f"not: `{lines[0]}`"
        cause = truth["cause"] if known else f"{truth['cause']}: not named"
        print(
            f"| `{program.name}` | {truth['what']} | {where} | {cause} | "
            f"{'alike' if twin['alike'] else 'differs'} |"
        )
    print(f"\nAt the line: {at_line} of {planted}. The cause: {right} of {planted}.")
    print(f"Of {alike} that are alike, {false} were said to differ.")


if __name__ == "__main__":
    main()
