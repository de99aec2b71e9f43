"""The public names are typed for a user's type checker."""

import subprocess
import sys

import auditor

USES = """
import auditor
from auditor import Edit, Finding, Remedy, Report, Severity, Site, Verdict
from auditor.testing import assert_no_findings

def step() -> None: ...

report: Report = auditor.audit(step, steps=5)
found: tuple[Finding, ...] = report.at_least("note")
verdicts: tuple[Verdict, ...] = report.verdicts
noted = [each.site for each in found if each.severity is Severity.NOTE]
sites: list[Site | None] = noted
with auditor.watch(steps=20) as watched:
    step()
watched.report.run.outcome.upper()
with auditor.watch(every=1000) as run:
    run.steps.bit_length()
with auditor.shadow_cuda():
    step()
assert_no_findings("trainer:step", fail_on="error").run.target.upper()
report.render("markdown").encode()
report.render("json").decode()
report.render(input()).upper()
print(auditor.__version__.upper(), Edit, Remedy)
"""
MISUSES = """
import auditor

auditor.audit("trainer:step", stepz=5)
auditor.audit("trainer:step").findingz
auditor.adit
"""


def test_a_users_script_passes_a_strict_type_checker_and_mistakes_in_it_do_not(tmp_path):
    for name, text in (("uses.py", USES), ("misuses.py", MISUSES)):
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "uses.py", "misuses.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    wrong = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.partition(":")[0] for line in wrong] == ["misuses.py"] * 3, done.stdout


def test_every_public_name_can_be_imported():
    assert all(getattr(auditor, name) is not None for name in auditor.__all__)
