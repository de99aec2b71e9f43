"""What is certain before a rehearsal: no rule takes it back, whatever the rehearsal shows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from auditor.cli import first_findings
from auditor.cli.first_findings import FirstFindings
from auditor.cli.rule_selection import Choice
from auditor.evidence.table import Evidence, Table
from auditor.judging import engine
from auditor.judging.config import Settings
from auditor.model import Finding, Severity, Site
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.recordings.writer import store_sources
from auditor.rule import Rule
from auditor.runs import finalize


class Lines(Table):
    parts = ("lines",)

    def __init__(self, rows: list[dict]) -> None:
        self.rows = rows

    @classmethod
    def build(cls, recording: Recording) -> Lines:
        return cls(recording.rows("lines"))


@dataclass(frozen=True)
class Plain(Rule):
    """A line."""

    code = "TIME911"
    severity = Severity.WARNING
    since = "0.1"

    def detect(self, lines: Lines) -> Iterator[Finding]:
        for row in lines.rows:
            site = Site("a.py", row["line"], "f", f"line {row['line']}") if row["line"] else None
            us = row.get("us")
            bounds = {"lost_us_per_step_low": us, "lost_us_per_step_high": us}
            basis = "none" if us is None else "measured"
            yield Finding(site, "a line", lost_us_per_step=us, basis=basis, **bounds)


def like_it(code: str, **facts: object) -> type[Rule]:
    return type(code, (Plain,), {"code": code, "__doc__": "A line.", **facts})


RULES = (
    Plain,
    like_it("TIME912", rehearsed=True),
    like_it("TIME913", rehearsed=True, everywhere=True),
    like_it("TIME914", cause="one"),
    like_it("TIME915", cause="one", rehearsed=True),
)


def recorded(folder: Path, rows: list[dict], device: str = "cpu") -> Recording:
    (folder / "a.py").parent.mkdir(parents=True, exist_ok=True)
    (folder / "a.py").write_text("x = 1\n" * 9)
    writer = RecordingWriter(folder)
    for step in range(12):
        fields = {"pass": "quiet", "step": step, "us": 1e6, "host_us": 1e6, "start_us": 1e6 * step}
        writer.add_fields("steps", fields)
    writer.touch("lines")
    for row in rows:
        writer.add_fields("lines", row)
    writer.close()
    sources = store_sources(folder, str(folder), iter([str(folder / "a.py")]))
    facts = {"schema": SCHEMA, "cwd": str(folder), "device": device, "outcome": "completed"}
    write_manifest(folder, {**facts, "sources": sources, "environment": {}})
    return Recording(folder)


def early(recording: Recording, rules=RULES) -> set[tuple[str, int]]:
    found = engine.settled(Evidence(recording), rules)
    return {(each.code, each.site.line) for each in found}


def test_what_a_rehearsal_decides_is_not_certain(tmp_path):
    assert early(recorded(tmp_path, [{"line": 3}])) == {("TIME911", 3), ("TIME913", 3)}


@pytest.mark.parametrize("rows", [[], [{"line": 5}], [{"line": 3}], [{"line": 3, "us": 9.0}]])
def test_none_is_taken_back_by_a_rehearsal(tmp_path, rows):
    recording = recorded(tmp_path, [{"line": 3, "us": 5e4}, {"line": 4}])
    before = early(recording)
    recorded(tmp_path / "rehearsal", rows, "rehearse")
    judged = engine.judge(Evidence(Recording(tmp_path)), RULES)
    after = {(place.code, place.site.line) for each in judged.findings for place in each.places}
    after |= {(each.code, each.site.line) for each in judged.findings}
    assert before and before <= after


def test_a_silenced_line_and_a_finding_without_one_are_not_said(tmp_path):
    recording = recorded(tmp_path, [{"line": 0}, {"line": 2}])
    name = recording.manifest["sources"]["a.py"]
    source = "x = 1\nx = 1  # audit: ignore[TIME911]\n"
    (tmp_path / "sources" / name).write_text(source)
    assert early(Recording(tmp_path), (Plain,)) == set()


def choice(*rules: type[Rule], **settings: object) -> Choice:
    return Choice(rules, Settings(**settings))


@pytest.mark.parametrize(("us", "said"), [(1001.0, True), (999.0, False)])
def test_what_costs_too_little_is_not_said(tmp_path, us, said):
    """A thousandth of a step of a second."""
    found = first_findings.first(
        recorded(tmp_path, [{"line": 3, "us": us}]), choice(Plain), [Plain]
    )
    assert bool(found) is said


def said_of(folder, *, joined=True) -> list[str]:
    lines: list[str] = []
    first = FirstFindings(choice(Plain), lines.append)
    with first.until_judged():
        first.announce(recorded(folder, [{"line": 3}]))
        if joined:
            first._threads[-1].join()
    return lines


def test_nothing_is_said_once_the_table_is_next(tmp_path, monkeypatch):
    over = lambda *given: given[3].__self__.wait(20) and [None]
    monkeypatch.setattr(first_findings, "first", over)
    assert said_of(tmp_path, joined=False) == []


def test_a_fault_of_ours_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(first_findings, "first", lambda *_: 1 / 0)
    assert said_of(tmp_path) == []


# -- while the target runs -------------------------------------------------------------------------


class Numbers(Lines):
    parts = ("numerics",)


class OfALaterPass(Plain):
    """A line of the precision pass."""

    code = "TIME916"

    def detect(self, numbers: Numbers) -> Iterator[Finding]:
        yield Finding(Site("a.py", 4, "f", "line 4"), "a later line")


def under_way(folder: Path) -> Path:
    """A recording whose process still runs: no sources, and nobody said how it ended."""
    recording = recorded(folder, [{"line": 3}])
    recording.folder.joinpath("numerics.jsonl").touch()
    shutil.rmtree(folder / "sources")
    facts = {"outcome": "killed", "sources": {}, "target_files": [str(folder / "a.py")]}
    write_manifest(folder, recording.manifest | facts)
    return folder


def test_of_a_run_under_way_each_rule_is_asked_once_its_passes_are_over(tmp_path):
    lines: list[str] = []
    first = FirstFindings(choice(Plain, OfALaterPass), lines.append)
    before = {path: path.read_bytes() for path in under_way(tmp_path).rglob("*") if path.is_file()}
    with first.until_judged():
        first.announce_part(tmp_path, frozenset({"numbers", "gradients"}))
        first._threads[-1].join()
        assert lines[1:] == ["  a.py:3: TIME911 a line"]
        first.announce(Recording(tmp_path))
        first._threads[-1].join()
    assert lines[2:] == ["  a.py:4: TIME916 a later line"]
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_run_under_way_is_copied_as_if_it_had_completed(tmp_path):
    folder = under_way(tmp_path / "recording")
    (folder / "snapshot.pickle").touch()
    copy = finalize.as_it_stands(folder, tmp_path / "copy")
    wanted = ("completed", [{"name": "quiet", "steps": 12}])
    assert (copy.outcome, copy.manifest["passes"]) == wanted
    assert copy.site_at(str(folder / "a.py"), 3).text == "x = 1"
    assert copy.snapshot is None and Recording(folder).outcome == "killed"


class Shown:
    def __init__(self) -> None:
        self.told: list[object] = []

    def stage(self, name: str) -> None:
        self.told.append(name)

    def outline(self, passes: list[tuple[str, int]]) -> None:
        self.told.append(passes)

    def __call__(self, name: str, done: int, steps: int) -> None:
        self.told.append((name, done, steps))


PLANNED = [("quiet", 3), ("loud", 2), ("numbers", 1), ("gradients", 1)]


def watched(tmp_path, monkeypatch, calls) -> tuple[list[frozenset[str]], list[object]]:
    """What was announced of a run with these calls, and what its display was told."""
    parts, shown = [], Shown()
    first = FirstFindings(choice(Plain), lambda words: None)
    monkeypatch.setattr(first, "announce_part", lambda folder, later: parts.append(later))
    display = first.beside(shown, tmp_path)
    display.outline(PLANNED)
    for each in calls:
        display.stage(each) if isinstance(each, str) else display(*each)
    return parts, shown.told


@pytest.mark.parametrize(
    ("calls", "announced"),
    [
        ([("loud", 0, 2), ("loud", 2, 2), ("numbers", 0, 1)], [{"numbers", "gradients"}]),
        ([("loud", 2, 2), ("numbers", 0, 1), ("loud", 0, 2), ("gradients", 0, 1)], 1),
        ([("quiet", 3, 3), ("loud", 0, 2), ("loud", 2, 2)], []),
        ([("quiet", 3, 3), "rehearsal", ("loud", 2, 2), ("numbers", 0, 1)], []),
        (["rehearsal", ("loud", 2, 2), ("numbers", 0, 1)], [{"numbers", "gradients"}]),
        ([("warmup", 0, 2), "rehearsal", ("loud", 2, 2), ("numbers", 0, 1)], 1),
    ],
    ids=[
        "once it is over",
        "once",
        "not before",
        "not of a later run",
        "of a rehearsal where there is no other run",
        "where the other ended at its first step",
    ],
)
def test_the_end_of_the_diagnostic_pass_is_announced(tmp_path, monkeypatch, calls, announced):
    parts, told = watched(tmp_path, monkeypatch, calls)
    assert parts == announced or len(parts) == announced
    assert told == [PLANNED, *calls]
