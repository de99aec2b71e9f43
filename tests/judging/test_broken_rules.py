"""A rule, a rule pack or a probe that broke never passes for a clean one: not in the exit code, nor
on any page.
"""

import json

import pytest
from click.testing import CliRunner

from auditor.cli.main import main
from auditor.cli.rule_selection import exit_code
from auditor.evidence.table import Evidence, Table
from auditor.judging import catalogue, engine
from auditor.model import Finding, PeakBytes, Report, Run, Verdict
from auditor.recordings.folder import Recording

MANIFEST = {"schema": "audit-recording/1", "target": "t:step", "cwd": "/nowhere", "steps": 3}
MANIFEST |= {"warmup": 0, "device": "cpu", "passes": [{"name": "quiet", "steps": 3}]}
MANIFEST |= {"outcome": "completed", "sources": {}, "recorded_at": "2026-01-01T00:00:00+00:00"}
MANIFEST |= {"warnings": []}
PACK = '''
from dataclasses import dataclass
from auditor.evidence.recorded.reads import Reads
from auditor.model import Finding, Severity
from auditor.rule import Rule

@dataclass(frozen=True)
class Acme(Rule):
    """A rule of a pack's."""

    code = "ACME001"
    severity = Severity.ERROR
    since = "1"

    def detect(self{signature}):
        {body}

RULES = {rules}
'''
BREAKS = {
    "raises": dict(signature="", body="raise ZeroDivisionError(3)\n        yield"),
    "leaves": dict(signature="", body="raise SystemExit(0)\n        yield"),
    "signature": dict(signature=", reads: 'Reeds'", body="yield"),
    "no finding": dict(signature="", body="yield 'a finding'"),
    "wrong price": dict(signature="", body="yield Finding(None, 'x', lost_us_per_step='much')"),
    "wrong severity": dict(signature="", body="yield Finding(None, 'x', severity='error')"),
}
CLEAN = dict(signature="", body="return\n        yield")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A recording to judge, in the working directory, where packs can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "recording").mkdir()
    (tmp_path / "recording" / "manifest.json").write_text(json.dumps(MANIFEST))
    (tmp_path / "recording" / "steps.jsonl").write_text(
        '{"pass": "quiet", "step": 0, "us": 10.0}\n'
    )
    return tmp_path


@pytest.fixture
def pack(folder, monkeypatch):
    """Installs a rule pack with this source, as its distribution would."""

    def install(source: str, value: str = "acme_rules:RULES") -> None:
        for name in list(__import__("sys").modules):
            if name == "acme_rules":
                monkeypatch.delitem(__import__("sys").modules, name)
        (folder / "acme_rules.py").write_text(source)
        info = folder / "acme_rules-1.2.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rules\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[auditor.rules]\nacme = {value}\n")

    return install


def analyze(*words: str):
    return CliRunner().invoke(main, ["analyze", "recording", "--select", "ACME001,SYNC001", *words])


def written(folder) -> dict:
    return json.loads((folder / "report.json").read_bytes())


@pytest.mark.parametrize("how", BREAKS)
def test_a_rule_that_breaks_is_exit_2_and_the_report_is_written(folder, pack, how):
    pack(PACK.format(rules="(Acme,)", **BREAKS[how]))
    done = analyze("--fail-on", "note")
    assert done.exit_code == 2, done.output
    assert "exit code 2, since rules broke: ACME001" in done.stderr
    report = written(folder)
    assert ("ACME001", "failed") in {(each["code"], each["status"]) for each in report["verdicts"]}
    assert "1 rule failed to run: ACME001" in report["caveats"][0] == report["warnings"][0]


def test_allow_broken_rules_goes_on_and_says_so_above_the_findings(folder, pack):
    pack(PACK.format(rules="(Acme,)", **BREAKS["raises"]))
    done = analyze("--fail-on", "note", "--allow-broken-rules")
    assert done.exit_code == 0, done.output
    said = done.stdout.index("\nwarning: 1 rule failed to run: ACME001")
    assert said < done.stdout.index("\nNo findings")
    page = (folder / "report.html").read_text()
    assert page.index("1 rule failed to run") < page.index('class="headline"')


# fmt: off
BROKEN_PACKS = {
    "a module that is missing": ("import nothing_of_this_name", "acme_rules:RULES", "ModuleNotFoundError: No module named"),
    "a name that is missing": ("", "acme_rules:RULES", "AttributeError"),
    "an error of its own": ("1 / 0", "acme_rules:RULES", "ZeroDivisionError: division by zero"),
    "a program that leaves": ("raise SystemExit(0)", "acme_rules:RULES", "SystemExit: 0"),
    "no sequence": ("RULES = 3", "acme_rules:RULES", "TypeError"),
    "something else than rules": ("RULES = (int,)", "acme_rules:RULES", "<class 'int'> is not a class of rules"),
    "a code that is taken": (
        PACK.format(rules="(Acme,)", **CLEAN).replace("ACME001", "SYNC001"), "acme_rules:RULES", "second rule"),
    "a code that is none": (
        PACK.format(rules="(Acme,)", **CLEAN).replace("ACME001", "A1"), "acme_rules:RULES", "has the code 'A1'"),
    "a rule without detect": (
        PACK.format(rules="(Acme,)", **CLEAN).replace("detect(", "look("), "acme_rules:RULES", "has no detect"),
}
# fmt: on


@pytest.mark.parametrize("how", BROKEN_PACKS)
def test_a_pack_that_cannot_be_imported_is_one_sentence(folder, pack, how):
    source, value, said = BROKEN_PACKS[how]
    pack(source, value)
    done = CliRunner().invoke(main, ["analyze", "recording"])
    assert done.exit_code == 2
    first, hint = done.stderr.splitlines()
    assert first.startswith(
        "audit: the rule pack 'acme' (acme_rules:RULES) of the distribution acme-rules 1.2 "
    )
    assert said in first
    assert "pip uninstall acme-rules" in hint and "--allow-broken-rules" in hint
    for command in (["run", "t:step"], ["checkpoint", "x.pt"], ["rules"]):
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 2 and done.stderr.startswith("audit: the rule pack 'acme'"), (
            done.output
        )


def test_without_the_pack_the_rest_is_judged_and_the_report_says_so_first(folder, pack):
    pack("1 / 0")
    (folder / "pyproject.toml").write_text("[tool.audit.rules.ACME001]\nknob = 3\n")
    done = CliRunner().invoke(main, ["analyze", "recording", "--allow-broken-rules"])
    assert done.exit_code == 0, done.output
    assert "its rules were not run" in written(folder)["caveats"][0]
    assert done.stdout.index("the rule pack 'acme'") < done.stdout.index("No findings")


# -- probes ----------------------------------------------------------------------------------------


def test_a_rule_whose_probe_broke_is_skipped_everywhere(folder):
    recording = folder / "recording"
    for part in ("clippings", "sites"):
        (recording / f"{part}.jsonl").touch()
    (recording / "lapses.jsonl").write_text(
        '{"pass": "loud", "step": 0, "probe": "clippings", "parts": ["clippings"], "error": "OSError: '
        'gone"}\n'
    )
    formats = [f"--format={name}=out.{name}" for name in ("sarif", "junit", "github", "markdown")]
    done = CliRunner().invoke(main, ["analyze", "recording", "--select", "OPT006", *formats])
    assert done.exit_code == 0, done.output
    why = "the probe 'clippings' failed and did not see all of it (OSError: gone)"
    report = written(folder)
    assert [(each["status"], each["reason"]) for each in report["verdicts"]] == [("skipped", why)]
    for said in (
        done.stdout,
        (folder / "report.html").read_text(),
        *((folder / f"out.{name}").read_text() for name in ("github", "markdown")),
    ):
        flat = " ".join(said.replace("&#39;", "'").split())
        assert f"{why}: OPT006 could not be checked" in flat
        assert "1 could not be checked" in flat and "0 rules passed" in flat
    assert f'<skipped message="{why}"' in (folder / "out.junit").read_text()
    notifications = json.loads((folder / "out.sarif").read_text())["runs"][0]["invocations"][0][
        "toolConfigurationNotifications"
    ]
    assert f"not checked: {why}" in [each["message"]["text"] for each in notifications]


class Seen(Table):
    """A part of which nothing is there."""

    parts = ("reads",)

    @classmethod
    def build(cls, recording):
        return cls()


def verdict(folder, rule):
    return engine.judge(Evidence(Recording(folder / "recording")), (rule,)).verdicts[0]


def test_a_part_that_is_missing_since_its_probe_broke_says_that(folder):
    """The probe failed before it could write: its reason is not that nobody stepped."""
    probes = {"fed": {"status": "failed", "error": "KeyError: 1", "parts": ["norms"]}}
    manifest = json.dumps({**MANIFEST, "probes": probes})
    (folder / "recording" / "manifest.json").write_text(manifest)
    told = verdict(folder, next(r for r in catalogue.own_rules() if r.code == "NUM014"))
    assert told.status == "skipped" and told.reason.startswith("the probe 'fed' failed")


def test_what_only_a_rehearsal_decides_is_not_clean_where_its_probe_broke(folder):
    """On the CPU there is nothing to find, and of the rehearsal nothing is known."""
    rehearsal = folder / "recording" / "rehearsal"
    rehearsal.mkdir()
    for each, device in ((folder / "recording", "cpu"), (rehearsal, "rehearse")):
        (each / "manifest.json").write_text(json.dumps({**MANIFEST, "device": device}))
        (each / "reads.jsonl").touch()
    rule = next(rule for rule in catalogue.own_rules() if rule.code == "SYNC001" and rule.rehearsed)

    def detect(self, reads: Seen):
        return iter(())

    asked = type("Asked", (rule,), {"detect": detect, "in_trace": None})
    detect.__annotations__ = {"reads": Seen}
    assert verdict(folder, asked).status == "clean"
    (rehearsal / "lapses.jsonl").write_text(
        '{"pass": "loud", "step": 0, "probe": "reads", "parts": ["reads"], "error": "OSError: gone"}\n'
    )
    told = verdict(folder, asked)
    assert told.status == "skipped" and "OSError: gone" in told.reason


# -- exit codes ------------------------------------------------------------------------------------


def report(outcome="completed", training="trained", statuses=("clean",), findings=()):
    run = Run("t:step", 3, 0, 1, "cpu", outcome, None, None, PeakBytes(), "2", "3", "now", training)
    return Report(
        run,
        tuple(Verdict(f"T00{n}", "t", status, "x") for n, status in enumerate(statuses)),
        tuple(findings),
    )


FOUND = [Finding(None, "x", severity=None)]


@pytest.mark.parametrize(
    ("made", "fail_on", "code"),
    [
        (report(statuses=("clean", "skipped")), "note", 0),
        (report(statuses=("failed",)), "never", 2),
        (report(statuses=("failed", "found"), findings=FOUND), "note", 2),
        (report(outcome="raised", statuses=("failed",)), "never", 3),
        (report(outcome="interrupted", statuses=("failed",)), "never", 130),
        (report(training="nothing"), "never", 2),
        (report(training="forward"), "never", 2),
        (report(training="forward"), "note", 2),
        (report(training="evaluated"), "never", 2),
        (report(training=None), "note", 0),
    ],
)
def test_exit_codes(made, fail_on, code):
    assert exit_code(made, fail_on) == code
