"""A recording that is damaged is judged as far as it could be read, and that is said on top."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from auditor.cli.main import main
from auditor.recordings.folder import SCHEMA
from auditor.recordings.writer import write_manifest

STEP = '{"pass":"quiet","step":%d,"us":5.0}'
GRAPH = '{"pass":"loud","step":%d,"root":"a.py:f:x","tensors":1}'


def lines(form: str) -> str:
    return "".join(f"{form % number}\n" for number in range(8))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "recording"
    folder.mkdir()
    write_manifest(
        folder, {"schema": SCHEMA, "target": "a:f", "cwd": str(tmp_path), "outcome": "completed"}
    )
    (folder / "steps.jsonl").write_text(lines(STEP))
    (folder / "graphs.jsonl").write_text(lines(GRAPH))
    for part in ("backward", "reused", "sites"):
        (folder / f"{part}.jsonl").touch()
    return folder


def report(folder: Path):
    words = ["analyze", str(folder), "--out", str(folder.parent / "out"), "--quiet"]
    done = CliRunner().invoke(main, [*words, "--select", "GRAPH001,KERN"])
    assert done.exit_code == 0, done.output
    return json.loads((folder.parent / "out" / "report.json").read_text())


def linked(file: Path) -> None:
    real = file.rename(file.parent.parent / "elsewhere")
    file.symlink_to(real)


def piped(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "strings": lambda file: file.write_text(file.read_text().replace("1}", '"one"}')),
    "garbage": lambda file: file.write_bytes(os.urandom(500) + b"\n" + file.read_bytes()),
    "one line": lambda file: file.write_text(file.read_text().replace('"tensors"', "tensors", 1)),
    "a link": linked,
    "a pipe": piped,
    "a folder": a_folder,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_was_not_read_is_said_and_no_rule_that_needs_it_is_clean(folder, damage):
    DAMAGE[damage](folder / "graphs.jsonl")
    judged = report(folder)
    assert "graphs.jsonl" in judged["warnings"][0]
    assert judged["warnings"][0] in judged["caveats"]  # above the findings
    (verdict,) = (each for each in judged["verdicts"] if each["code"] == "GRAPH001")
    assert verdict["status"] == "skipped" and "graphs.jsonl" in verdict["reason"]


@pytest.mark.parametrize("whole", ["", lines(GRAPH)], ids=["first line", "last line"])
def test_a_line_that_was_cut_off_as_the_run_was_killed_is_no_damage(folder, whole):
    (folder / "graphs.jsonl").write_text(whole + GRAPH[:20])
    assert not any("jsonl" in each for each in report(folder)["warnings"])


def test_a_trace_that_is_cut_off_is_said_on_top_and_its_rules_are_skipped(folder: Path) -> None:
    (folder / "trace.json.gz").write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1,')
    made = report(folder)
    assert "trace.json.gz is damaged: it ends in the middle" in made["warnings"][0]
    reasons = {each["code"]: each["reason"] for each in made["verdicts"]}
    for code in ("KERN001", "KERN002", "KERN003"):
        assert reasons[code] == made["warnings"][0]
