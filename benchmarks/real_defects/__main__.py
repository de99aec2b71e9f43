"""Audits small programs with defects that public threads found and fixed, and their repaired twins;
writes docs/real-defects.md.

    python -m benchmarks.real_defects [--jobs N] [--keep FOLDER] [--kept FOLDER] [name ...]

A program's ``truth.json`` was written with it, before any audit: the thread, what its authors
gained, and the line (with its equals) where the change belongs. Found is what stands at such a
line. With names only these are audited, and the page is printed, not written. ``--kept`` audits
nothing and writes the page from the reports that an earlier run kept; what has none is said.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAMS = Path(__file__).with_name("programs")
PAGE = ROOT / "docs" / "real-defects.md"
STEPS = 20

HEAD = """# Defects of real trainers

Public threads in which a defect of a training step was found and fixed. For each, the smallest
program that has it was written, and its repaired twin (`benchmarks/real_defects/programs`; facts of
the threads, code of our own), by an author who had read no rule (from 65 on: by one who had), with
the line where the change belongs. `python -m benchmarks.real_defects` audits them all and writes
this page. Gains are what the authors say, on their machines; no program ran on a GPU here.

Found at the line: {found} of {audited}. Twins with an error or a warning: {loud} of {twins}. Not
audited yet: {waiting} of {all}.

| thread | gained, say its authors | we say, at the line | twin |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Side:
    """What an audit said of one program."""

    findings: list[dict[str, Any]]
    judged: bool
    """There is a report."""


@dataclass(frozen=True)
class Pair:
    """A defect and what was said of it."""

    name: str
    truth: dict[str, Any]
    bad: Side
    ok: Side

    @property
    def found(self) -> list[dict[str, Any]]:
        """Findings at the line that was written down, or at one of its equals."""
        wanted = {self.truth["line"], *self.truth["also"]}
        return [each for each in self.bad.findings if wanted & set(lines(each))]

    @property
    def loud(self) -> list[dict[str, Any]]:
        """What is louder than a note in the twin."""
        return [each for each in self.ok.findings if each["severity"] != "note"]


def lines(finding: dict[str, Any]) -> Iterator[int]:
    """All lines that a finding names as its own."""
    sites = [finding["site"], *finding["places"]]
    yield from (site["line"] for site in sites if site is not None)


def audited(folder: Path, form: str, out: Path) -> Side:
    """Audit one program."""
    target = "trainer.py" if form == "script" else "trainer:step"
    subprocess.run(
        [
            *(sys.executable, "-c", "from auditor.cli.main import main; main()"),
            *("run", target, "--steps", str(STEPS), "--out", str(out)),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=900,
    )
    return kept(out)


def kept(out: Path) -> Side:
    """What an earlier audit said."""
    report = out / "report.json"
    found = json.loads(report.read_text())["findings"] if report.exists() else []
    return Side(found, report.exists())


def pair(folder: Path, out: Path, *, audit: bool) -> Pair:
    """Audit a program and its twin, or take what was kept of them."""
    truth = json.loads((folder / "truth.json").read_text())
    bad, ok = (
        audited(folder / side, truth["form"], out / folder.name / side)
        if audit
        else kept(out / folder.name / side)
        for side in ("bad", "ok")
    )
    print(folder.name, file=sys.stderr)
    return Pair(folder.name, truth, bad, ok)


def row(each: Pair) -> str:
    """One line of the page."""
    said = _named(each.found) or "**nothing**" if each.bad.judged else "not audited yet"
    twin = _named(each.loud) or "silent" if each.ok.judged else "not audited yet"
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


def page(pairs: list[Pair]) -> str:
    """The whole page."""
    head = HEAD.format(
        found=sum(bool(each.found) for each in pairs),
        loud=sum(bool(each.loud) for each in pairs),
        audited=sum(each.bad.judged for each in pairs),
        twins=sum(each.ok.judged for each in pairs),
        waiting=sum(not each.bad.judged for each in pairs),
        all=len(pairs),
    )
    return head + "".join(row(each) for each in pairs)


def main() -> None:
    """Audit, and write or print the page."""
    asked = argparse.ArgumentParser(prog="python -m benchmarks.real_defects")
    asked.add_argument("names", nargs="*")
    asked.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked.add_argument("--keep", type=Path)
    asked.add_argument("--kept", type=Path)
    given = asked.parse_args()
    known = sorted(each for each in PROGRAMS.iterdir() if (each / "truth.json").exists())
    chosen = [each for each in known if not given.names or each.name in given.names]
    with (
        tempfile.TemporaryDirectory() as temporary,
        ThreadPoolExecutor(max(1, given.jobs)) as pool,
    ):
        out = (given.kept or given.keep or Path(temporary)).resolve()
        pairs = list(pool.map(lambda each: pair(each, out, audit=given.kept is None), chosen))
    if given.names:
        print(page(pairs), end="")
    else:
        PAGE.write_text(page(pairs))


if __name__ == "__main__":
    main()
