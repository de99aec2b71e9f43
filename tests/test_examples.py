"""The examples as a user audits them: planted faults at their lines alone, clean ones silent."""

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from auditor.cli import first_findings, rule_selection
from auditor.recordings.folder import Recording
from auditor.runs.plan import NULL_RUN, REHEARSAL, REPLAY
from tests.lazily import Lazily

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SLOW = ("eit_p", "mmgcn", "nano_gpt", "qc_trainer", "text_recogniser")
"""Examples that only ``make test-slow`` audits: each pair takes half a minute."""

CASES = {
    str(path.parent.relative_to(EXAMPLES)): tomllib.loads(path.read_text())
    for path in sorted(EXAMPLES.rglob("expected.toml"))
}
FULL = ("energy_flow",)
"""The pair that ``make test-full`` audits."""


def marks(example):
    return [*([pytest.mark.slow] * (example in SLOW)), *([pytest.mark.full] * (example in FULL))]


NAMES = [pytest.param(name, marks=marks(name.partition("/")[0])) for name in CASES]


@pytest.fixture(scope="module")
def audits(tmp_path_factory, audit):
    out = tmp_path_factory.mktemp("examples")

    def one(name):
        folder = out / name.replace("/", "-")
        done = audit(
            "run",
            CASES[name]["target"],
            "--steps",
            "20",
            "--overhead",  # on a busy machine passes are whole, too
            "600",
            "--out",
            str(folder),
            cwd=EXAMPLES / name,
            timeout=400,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        report = json.loads((folder / "report.json").read_text())
        return report, folder / "recording", done.stderr

    return Lazily(one)


@pytest.fixture(scope="module")
def reports(audits):
    return Lazily(lambda name: audits[name][0])


def line_of(name, text):
    """File and number of the only line of an example that contains a text."""
    hits = [
        (path.name, number)
        for path in (EXAMPLES / name).glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if text in line
    ]
    assert len(hits) == 1, f"{text!r} stands on {len(hits)} lines"
    return hits[0]


def places_of(finding):
    """Code, file and line of all that a finding joins."""
    site = finding["site"] or {"file": None, "line": None}
    return {
        (each["code"], each["file"], each["line"])
        for each in finding["places"] or [{"code": finding["code"], **site}]
    }


@pytest.mark.parametrize("name", NAMES)
def test_what_is_expected_is_found_at_its_line_and_nothing_else(reports, name):
    case, report = CASES[name], reports[name]
    seen = {"cpu", "cuda"}
    wanted = {
        (e["code"], *line_of(name, e["line_contains"]))
        for e in case.get("expected", ())
        if e["needs"] in seen
    }
    findings = [f for f in report["findings"] if f["code"] not in case.get("allowed", ())]
    assert wanted <= {place for f in findings for place in places_of(f)}
    loud = {place for f in findings if f["severity"] != "note" for place in places_of(f)}
    assert loud <= wanted, "found more than was planted"


@pytest.mark.parametrize("name", NAMES)
def test_clean_examples_are_silent(reports, name):
    assert not CASES[name].get("clean") or reports[name]["findings"] == []


@pytest.mark.parametrize("name", NAMES)
def test_no_rule_failed_and_no_probe_failed(reports, name):
    assert {v["status"] for v in reports[name]["verdicts"]} <= {"found", "clean", "skipped"}
    assert reports[name]["warnings"] == []


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_is_said_early_is_taken_back(audits, name, tmp_path):
    report, recording, stderr = audits[name]
    further = shutil.ignore_patterns(REHEARSAL, NULL_RUN, REPLAY)  # what is not there yet
    shutil.copytree(recording, tmp_path / "recording", ignore=further)
    choice = rule_selection.choose((), ())
    early = first_findings.first(Recording(tmp_path / "recording"), choice, choice.rules)
    loud = [each for each in report["findings"] if each["severity"] != "note"]
    there = {place for finding in loud for place in places_of(finding)}
    assert {(each.code, each.site.file, each.site.line) for each in early} <= there
    said = re.findall(r"^audit:   (\S+):(\d+): ([A-Z]+\d+) ", stderr, re.MULTILINE)
    assert {(code, file, int(line)) for file, line, code in said} <= there
    assert bool(said) == bool(early)
