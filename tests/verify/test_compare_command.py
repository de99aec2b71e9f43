"""``audit compare``: what it says of two audits, when it fails a build, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from auditor.reports import as_json
from click.testing import CliRunner, Result

from auditor.cli import main
from auditor.model import Finding, PeakBytes, Report, Run, Site, StepTimes, Verdict, finding_key
from auditor.recording import SCHEMA, RecordingWriter, write_manifest


def _finding(line: str, per_step: float = 2.0) -> Finding:
    site = Site("train.py", 7, "step", line)
    return Finding(site, f"`{line}` reads", 50, per_step, code="SYNC001", name="scalar-read", key=finding_key("SYNC001", site))


def _report(step_us: float, *findings: Finding, host: int = 1 << 30) -> Report:
    times = StepTimes(step_us, step_us, step_us, step_us, 50)
    run = Run("train:step", 50, 5, 1, "cpu", "completed", None, times, PeakBytes(None, host), "2.13.0", "3.11", "2026-01-01")
    return Report(run, (Verdict("SYNC001", "scalar-read", "found"),), findings)


def _audit(folder: Path, step_us: float, *findings: Finding, steps: bool = True, queued_us: float = 0.0) -> Path:
    folder.mkdir(parents=True)
    (folder / "report.json").write_bytes(as_json.Json().render(_report(step_us, *findings)))
    if steps:
        recording = folder / "recording"
        write_manifest(recording, {"schema": SCHEMA, "device": "cpu", "recorded_at": "2026-01-01", "outcome": "completed"})
        writer = RecordingWriter(recording)
        for number in range(50):
            us = step_us * (1 + 0.01 * (number % 5)) + queued_us
            writer.add("steps", {"pass": "quiet", "step": number, "us": us, "queued_us": queued_us})
        writer.close()
    return folder


def _compare(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, arguments)])


def test_findings_are_told_apart_by_their_key_not_by_their_line(tmp_path: Path) -> None:
    moved = replace(_finding("a.item()"), site=Site("train.py", 99, "step", "a.item()"))
    before = _audit(tmp_path / "before", 1000, _finding("a.item()"), _finding("b.item()"))
    after = _audit(tmp_path / "after", 1000, moved, _finding("c.item()"))
    facts = json.loads(_compare(before, after, "--json").stdout)
    named = {name: [each["message"] for each in found] for name, found in facts["findings"].items()}
    assert named == {"new": ["`c.item()` reads"], "gone": ["`b.item()` reads"], "kept": ["`a.item()` reads"]}
    assert facts["syncs_per_step"] == {"before": 4.0, "after": 4.0}
    shown = _compare(before / "report.json", after / "recording" / "..").stdout
    assert "findings: 1 new, 1 gone, 1 kept" in shown
    assert "new  SYNC001 train.py:7" in shown


def test_a_proven_regression_fails_and_one_within_the_noise_does_not(tmp_path: Path) -> None:
    before, slower = _audit(tmp_path / "before", 1000), _audit(tmp_path / "slower", 1400)
    little = _audit(tmp_path / "little", 1080)
    assert _compare(before, slower, "--max-regression", "5%").exit_code == 1
    unproven = _compare(before, little, "--max-regression", "5")
    assert unproven.exit_code == 0
    assert "do not prove it" in unproven.stderr
    assert _compare(slower, before, "--max-regression", "0%").exit_code == 0
    assert _compare(before, slower).exit_code == 0


def test_several_runs_prove_what_one_cannot(tmp_path: Path) -> None:
    for number in range(5):
        _audit(tmp_path / "before" / str(number), 1000 + number)
        _audit(tmp_path / "after" / str(number), 1080 + number)
    found = _compare(tmp_path / "before", tmp_path / "after", "--max-regression", "5%")
    assert found.exit_code == 1
    assert "5 runs and 5 runs" in found.stdout


def test_waiting_for_the_processor_is_no_regression(tmp_path: Path) -> None:
    before, held_up = _audit(tmp_path / "before", 1000), _audit(tmp_path / "after", 1000, queued_us=900)
    assert json.loads(_compare(before, held_up, "--json").stdout)["ratio"]["ratio"] == pytest.approx(1.0)


def test_a_report_alone_has_no_interval_and_says_so(tmp_path: Path) -> None:
    before, alone = _audit(tmp_path / "before", 1000), _audit(tmp_path / "alone", 2000, steps=False)
    assert "no interval" in _compare(before, alone).stdout
    refused = _compare(before, alone, "--max-regression", "5%")
    assert refused.exit_code == 2
    assert str(alone) in refused.stderr


def test_a_recording_of_another_run_beside_a_report_is_not_used(tmp_path: Path) -> None:
    before, other = _audit(tmp_path / "before", 1000), _audit(tmp_path / "other", 2000)
    write_manifest(other / "recording", {"schema": SCHEMA, "device": "cpu", "recorded_at": "2025-05-05", "outcome": "completed"})
    assert "no interval" in _compare(before, other).stdout


@pytest.mark.parametrize("bound", ["much", "-3%"])
def test_a_bound_that_is_none_is_refused(tmp_path: Path, bound: str) -> None:
    assert _compare(tmp_path, tmp_path, f"--max-regression={bound}").exit_code == 2


def test_what_is_no_audit_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        refused = _compare(path, path)
        assert refused.exit_code == 2
        assert refused.stderr.startswith(f"audit: {path}")


def test_what_else_differs_is_said(tmp_path: Path) -> None:
    before, after = _audit(tmp_path / "before", 1000), _audit(tmp_path / "after", 1000)
    other = _report(1000)
    (after / "report.json").write_bytes(as_json.Json().render(replace(other, run=replace(other.run, torch="2.6.0"))))
    assert "differ in their torch: 2.13.0 and 2.6.0" in _compare(before, after).stderr
