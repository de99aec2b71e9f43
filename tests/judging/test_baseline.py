"""Baselines: what is known stays known when lines move, and a stranger's file is refused in one
sentence.
"""

import json
import os
from dataclasses import replace

import pytest

from auditor.errors import AuditProblem
from auditor.judging import baseline
from auditor.judging.baseline import Known, marked, updated
from auditor.model import (
    Finding,
    PeakBytes,
    Report,
    Run,
    Severity,
    Site,
    Verdict,
)


def finding(line=10, code="SYNC001", file="trainer.py", function="step", text="loss.item()"):
    return Finding(Site(file, line, function, text), "x", code=code, severity=Severity.WARNING)


def report(*findings, outcome="completed", verdicts=("SYNC001",), target="t:step", at="now"):
    run = Run(target, 3, 0, 1, "cpu", outcome, None, None, PeakBytes(), "2", "3", at, "trained")
    found = {each.code for each in findings}
    told = (Verdict(code, code, "found" if code in found else "clean") for code in verdicts)
    return Report(run, tuple(told), tuple(findings))


def known(*findings, **how):
    return Known("b.json", updated(report(*findings, **how), Known("b.json")))


def states(judged):
    return [each.baseline_state for each in judged.findings]


MOVED = finding(99, text="loss . item( )")


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (finding(), "unchanged"),
        (MOVED, "unchanged"),
        (finding(function="train_step"), "unchanged"),  # renamed
        (finding(text="other.item()"), "new"),
        (finding(file="model.py"), "new"),
        (finding(code="SYNC002"), "new"),
        (replace(finding(), site=None), "new"),
    ],
)
def test_a_finding_is_known_wherever_its_line_moved(now, said):
    assert states(marked(report(now), known(finding()))) == [said]


def test_a_second_occurrence_is_new_and_stands_in_its_own_function():
    first, second = finding(10), finding(5, function="validate")
    judged = marked(report(second, first), known(first))
    told = {each.site.function: each.baseline_state for each in judged.findings}
    assert told == {"validate": "new", "step": "unchanged"}
    assert states(marked(report(first, second), known(first, second))) == ["unchanged"] * 2
    twice = report(finding(10), finding(20))
    assert sorted(states(marked(twice, known(finding())))) == ["new", "unchanged"]


def test_an_installed_file_is_the_same_in_another_environment():
    here = finding(file="/home/me/.venv/lib/python3.12/site-packages/lib/loop.py")
    there = finding(file="/opt/ci/lib/python3.10/site-packages/lib/loop.py")
    assert states(marked(report(there), known(here))) == ["unchanged"]


BOTH = ("SYNC001", "MEM005")


@pytest.mark.parametrize(
    ("how", "gone", "unlooked"),
    [
        ({"verdicts": ("SYNC001",)}, ["SYNC001"], 1),
        ({"verdicts": BOTH}, ["MEM005", "SYNC001"], 0),
        ({"verdicts": BOTH, "outcome": "raised"}, [], 2),
        ({"target": "other:step"}, [], 0),
    ],
)
def test_gone_is_only_what_a_rule_looked_for(how, gone, unlooked):
    before = known(finding(), finding(code="MEM005"), verdicts=BOTH)
    found = marked(report(**how), before).baseline
    assert (sorted(each.code for each in found.gone), found.unlooked) == (gone, unlooked)


def test_an_update_drops_what_is_gone_and_keeps_what_was_not_looked_for():
    before = known(finding(), finding(code="MEM005"), verdicts=("SYNC001", "MEM005"))
    elsewhere = known(finding(file="b.py"), target="other:step").findings
    before = replace(before, findings=(*before.findings, *elsewhere))
    after = updated(report(finding(text="new.item()"), verdicts=("SYNC001",)), before)
    assert sorted((each.code, each.file, each.text) for each in after) == [
        ("MEM005", "trainer.py", "loss.item()"),
        ("SYNC001", "b.py", "loss.item()"),
        ("SYNC001", "trainer.py", "new.item()"),
    ]


def test_only_what_is_new_is_the_worst():
    error = replace(finding(text="a.item()"), severity=Severity.ERROR)
    assert marked(report(error, finding()), known(error)).worst() is Severity.WARNING
    assert marked(report(error), known(error)).worst() is None


# -- the file --------------------------------------------------------------------------------------


def test_what_is_written_is_read_back_and_does_not_change_with_lines(tmp_path):
    file = tmp_path / "b.json"
    file.write_text(baseline.written(known(finding(), finding(30, code="MEM005")).findings))
    again = baseline.read(str(file))
    assert set(again.findings) == set(known(finding(), finding(code="MEM005")).findings)
    moved = known(finding(77, code="MEM005"), finding(50)).findings
    assert baseline.written(moved) == file.read_text()


ROW = {"code": "S", "target": "", "file": "", "text": "", "parts": [{"key": "S", "function": ""}]}


def whole(**changed):
    return json.dumps({"schema": baseline.SCHEMA, "findings": [{**ROW, **changed}]})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("\xff", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("1" * 10_000, "not JSON"),
        ("[]", "its schema"),
        ('{"schema": "audit-report/1", "findings": []}', "its schema"),
        (json.dumps({"schema": baseline.SCHEMA}), "no list"),
        (json.dumps({"schema": baseline.SCHEMA, "findings": {}}), "no list"),
        (json.dumps({"schema": baseline.SCHEMA, "findings": [1]}), "findings[0] is no object"),
        (whole(code=1), "`code` of findings[0]"),
        (whole(file=None), "`file` of findings[0]"),
        (whole(text="x" * 5000), "`text` of findings[0]"),
        (whole(parts=[]), "findings[0].parts"),
        (whole(parts=["S"]), "findings[0].parts"),
        (whole(parts=[{"key": "S"}]), "`function` of findings[0]"),
        (whole(parts=[{"key": "S", "function": ""}] * 2000), "findings[0].parts"),
    ],
)
def test_what_is_no_baseline_is_refused_in_a_sentence(tmp_path, content, said):
    file = tmp_path / "b.json"
    file.write_text(content, encoding="latin-1")
    with pytest.raises(AuditProblem) as refused:
        baseline.read(str(file))
    assert said in refused.value.message and "\n" not in refused.value.message
    assert "--update-baseline" in refused.value.hint


def test_too_many_bytes_or_findings_are_refused(tmp_path, monkeypatch):
    file = tmp_path / "b.json"
    file.write_text(whole())
    monkeypatch.setattr(baseline, "MOST", 0)
    with pytest.raises(AuditProblem, match="at most 0 findings"):
        baseline.read(str(file))
    monkeypatch.setattr(baseline, "SIZE_LIMIT", 10)
    with pytest.raises(AuditProblem, match="more than 10 bytes"):
        baseline.read(str(file))


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(AuditProblem, match="is no file"):
            baseline.read(str(tmp_path / name))
    with pytest.raises(AuditProblem, match="does not exist") as refused:
        baseline.read(str(tmp_path / "gone.json"))
    assert refused.value.hint == "--update-baseline writes it"
