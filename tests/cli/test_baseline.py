"""``--baseline`` and ``--update-baseline`` from the outside, and in every format."""

import json
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from auditor.reports import renderer

from auditor.judging.baseline import Known, marked, updated
from tests.reports import golden_report as golden
from tests.timeline.kineto import text, training


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "step.json").write_text(text(training(3)))
    return tmp_path


@pytest.mark.full
def test_only_what_is_new_fails(folder, audit):
    words = ("analyze", "step.json", "--fail-on", "note", "--baseline", "new/b.json")
    refused = audit(*words, cwd=folder)
    assert refused.returncode == 2 and "new/b.json does not exist" in refused.stderr
    assert not (folder / "audits").exists(), "it is told before anything is read"
    first = audit(*words, "--update-baseline", cwd=folder)
    assert first.returncode == 0 and "new/b.json holds " in first.stderr, first.stderr
    again = audit(*words, "--format", "sarif=a.sarif", cwd=folder)
    assert again.returncode == 0 and "0 new findings" in again.stdout
    results = json.loads((folder / "a.sarif").read_text())["runs"][0]["results"]
    assert {each["baselineState"] for each in results} == {"unchanged"}
    held = json.loads((folder / "new/b.json").read_text())
    dropped = held["findings"].pop(0)
    held["findings"].append({**dropped, "parts": [{"key": "TIME999", "function": ""}]})
    (folder / "new/b.json").write_text(json.dumps(held))
    failed = audit(*words, cwd=folder)
    assert failed.returncode == 1 and "1 new finding, " in failed.stdout
    report = json.loads((folder / "audits/step/report.json").read_text())
    new = [each["code"] for each in report["findings"] if each["baseline_state"] == "new"]
    assert new == [dropped["code"]]
    assert "1 finding of the baseline is gone" in failed.stdout
    assert "--update-baseline" in failed.stdout


@pytest.mark.full
def test_update_without_a_file_or_of_several_paths_is_a_sentence(folder, audit):
    done = audit("analyze", "step.json", "--update-baseline", cwd=folder)
    assert done.returncode == 2 and "does not say which file" in done.stderr
    words = ("--baseline", "b.json", "--update-baseline")
    done = audit("analyze", "step.json", "step.json", *words, cwd=folder)
    assert done.returncode == 2 and "one path" in done.stderr
    done = audit("analyze", "step.json", "--baseline", "step.json", cwd=folder)
    assert done.returncode == 2 and "step.json: it is no baseline" in done.stderr


# -- formats ---------------------------------------------------------------------------------------


def compared():
    """The rich report with its first finding new, the others known, and one that is gone."""
    report = golden.rich_report()
    run = replace(report.run, outcome="completed")
    others = replace(report, run=run, findings=report.findings[1:])
    known = updated(others, Known("b.json"))
    lead = known[0]
    gone = replace(lead, parts=(replace(lead.parts[0], key="gone"),))
    return marked(replace(report, run=run), Known("b.json", (*known, gone)))


@pytest.mark.parametrize("name", ["terminal", "html", "markdown", "github"])
def test_people_are_told_what_is_new_and_what_is_gone(name):
    report = compared()
    shown = " ".join(renderer(name).render(report).split())
    assert f"1 new finding, {report.baseline.unchanged} known" in shown
    assert "1 finding of the baseline is gone" in shown


def test_known_findings_are_no_failure_and_no_annotation():
    report = compared()
    root = ET.fromstring(renderer("junit").render(report))
    failed = root.findall(".//testcase[failure]")
    lead = report.findings[0]
    assert {case.get("name").partition(" ")[0] for case in failed} == set(lead.codes)
    assert root.findall(".//testcase/system-out")
    annotations = renderer("github").render(report).splitlines()
    named = [line for line in annotations if "title=audit:" not in line.replace("::", ":")]
    assert len(named) == 1 and lead.code in named[0]
