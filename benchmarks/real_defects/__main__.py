"""Audits small programs with defects that public threads found and fixed, and their repaired twins;
writes docs/log/real-defects.md.

    python -m benchmarks.real_defects [--jobs N] [--keep FOLDER] [--kept FOLDER] [--gains] [name ...]

A program's ``truth.json`` was written with it, before any audit: the thread, what its authors
gained, and the line (with its equals) where the change belongs. Found is what stands at such a
line. With names only these are audited, and the page is printed, not written. ``--kept`` audits
nothing and writes the page from the reports that an earlier run kept; what has none keeps its row.
``--gains`` rewrites only the page's section of published gains (:mod:`.gains`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.real_defects import gains
from benchmarks.real_defects.pairs import PROGRAMS, Pair, Side, kept, target

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/log/real-defects.md"
STEPS = 20

NOTHING, SILENT, WAITING = "**nothing**", "silent", "not audited yet"
ROW = re.compile(r"^\| \[.*\), `(\d+_\w+)` \| ")

HEAD = """# Defects of real trainers

Public threads in which a defect of a training step was found and fixed. For each, the smallest
program that has it was written, and its repaired twin (`benchmarks/real_defects/programs`:
`trainer.py` and `repaired.diff`; facts of the threads, code of our own), by authors who had read no
rule (65 to 70: by one who had), with the line where the change belongs.
`python -m benchmarks.real_defects` audits them all and writes this page. Gains are what the authors
say, on their machines; no program ran on a GPU here.

Rules were mended after a program was missed, so only first results say what a new program may
expect. Of 71 to 94, trainings that train something else than they say, 10 of 24 were found at first
for the right reason. 101 to 115 were written for the second table. 24 programs are no longer here:
doubles of a program that is, found at the line by the same rule, each with a silent twin.

Found at the line: {found} of {audited}. Twins with an error or a warning: {loud} of {twins}. Not
audited yet: {waiting} of {all}.

| thread | gained, say its authors | we say, at the line | twin |
|---|---|---|---|
"""


def audited(folder: Path, out: Path, *, repaired: bool) -> Side:
    """Audit a program, or its twin, in a copy."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copy(folder / "trainer.py", copy)
        if repaired:
            diff = folder / "repaired.diff"
            subprocess.run(["git", "apply", "--unidiff-zero", diff], cwd=copy, check=True)
        subprocess.run(
            [
                *(sys.executable, "-c", "from auditor.cli.main import main; main()"),
                *("run", target(folder), "--steps", str(STEPS), "--out", str(out)),
            ],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=900,
        )
    return kept(out)


def pair(folder: Path, out: Path, *, audit: bool) -> Pair:
    """Audit a program and its twin, or take what was kept of them."""
    truth = json.loads((folder / "truth.json").read_text())
    bad, ok = (
        audited(folder, out / folder.name / side, repaired=side == "ok")
        if audit
        else kept(out / folder.name / side)
        for side in ("bad", "ok")
    )
    print(folder.name, file=sys.stderr)
    return Pair(folder.name, truth, bad, ok)


def row(each: Pair) -> str:
    """One line of the page."""
    said = _named(each.found) or NOTHING if each.bad.judged else WAITING
    twin = _named(each.loud) or SILENT if each.ok.judged else WAITING
    title = each.truth["title"].replace("|", "\\|")
    cells = (
        f"[{title}]({each.truth['link']}), `{each.name}`",
        each.truth["gained"].replace("|", "\\|"),
        said,
        twin,
    )
    return "| " + " | ".join(cells) + " |\n"


def _named(findings: list[dict[str, Any]]) -> str:
    return ", ".join(f"{one['code']} ({one['severity']})" for one in findings)


def page(pairs: list[Pair], before: str = "") -> str:
    """The whole page. What has no report keeps the row that it had in the page of ``before``."""
    had = {name: line for line in reversed(before.splitlines(True)) for name in ROW.findall(line)}
    rows = [row(each) if each.bad.judged else had.get(each.name, row(each)) for each in pairs]
    cells = [each.strip("| \n").split(" | ")[-2:] for each in rows]
    audited = [said for said, _ in cells if said != WAITING]
    twins = [twin for _, twin in cells if twin != WAITING]
    head = HEAD.format(
        found=len(audited) - audited.count(NOTHING),
        loud=len(twins) - twins.count(SILENT),
        audited=len(audited),
        twins=len(twins),
        waiting=len(rows) - len(audited),
        all=len(rows),
    )
    return head + "".join(rows) + "\n" + gains.section(pairs)


def main() -> None:
    """Audit, and write or print the page."""
    asked = argparse.ArgumentParser(prog="python -m benchmarks.real_defects")
    asked.add_argument("names", nargs="*")
    asked.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked.add_argument("--keep", type=Path)
    asked.add_argument("--kept", type=Path)
    asked.add_argument("--gains", action="store_true")
    given = asked.parse_args()
    folders = (each for each in PROGRAMS.iterdir() if (each / "truth.json").exists())
    known = sorted(folders, key=lambda each: (int(each.name.partition("_")[0]), each.name))
    chosen = [each for each in known if not given.names or each.name in given.names]
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(max(1, given.jobs)) as pool:
        out = (given.kept or given.keep or Path(temporary)).resolve()
        pairs = list(pool.map(lambda each: pair(each, out, audit=given.kept is None), chosen))
    if given.gains:
        PAGE.write_text(gains.renewed(PAGE.read_text(), pairs))
    elif given.names:
        print(page(pairs), end="")
    else:
        PAGE.write_text(page(pairs, PAGE.read_text()))


if __name__ == "__main__":
    main()
