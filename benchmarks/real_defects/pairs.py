"""A program with a defect and its repaired twin, and what an audit said of both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).with_name("programs")


def target(folder: Path) -> str:
    """What ``audit run`` is given for the program in this folder."""
    form = json.loads((folder / "truth.json").read_text("utf-8"))["form"]
    return "trainer.py" if form == "script" else "trainer:step"


@dataclass(frozen=True)
class Side:
    """What an audit said of one program."""

    report: dict[str, Any] | None
    """``report.json``; None where there is none."""

    @property
    def judged(self) -> bool:
        """There is a report."""
        return self.report is not None

    @property
    def findings(self) -> list[dict[str, Any]]:
        """Those of the report; empty where there is none."""
        return self.report["findings"] if self.report is not None else []


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


def kept(out: Path) -> Side:
    """What an earlier audit said."""
    report = out / "report.json"
    return Side(json.loads(report.read_text()) if report.exists() else None)
