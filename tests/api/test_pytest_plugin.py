"""The pytest plugin: one run of a small suite in a process of its own says what its users see."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from auditor import pytest_plugin
from auditor.api import Report
from auditor.model import Edit, Finding, PeakBytes, Remedy, Run, Severity, Site, Verdict
from auditor.testing import FindingsFound, check

ROOT = Path(__file__).resolve().parents[2]

SUITE = """
import sys
import pytest

LOADED = "torch" in sys.modules or "auditor.api" in sys.modules


def test_nothing_heavy_was_imported_to_collect():
    assert not LOADED


def loop(steps, keep):
    import torch

    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        kept.append(loss if keep else loss.detach())
    return kept


@pytest.mark.audit(select=["GRAPH001"], steps=20)
def test_keeps_graphs():
    loop(30, True)


@pytest.mark.audit(select=["GRAPH001"], steps=20)
def test_keeps_none():
    loop(30, False)


@pytest.mark.audit(select=["GRAPH001"])
def test_trains_nothing():
    pass


@pytest.mark.audit(select=["GRAPH001"], loud=True)
def test_has_an_unknown_option():
    loop(3, False)


@pytest.mark.audit(select=["GRAPH001"], steps=20)
def test_fails_by_itself():
    loop(3, False)
    raise RuntimeError("its own")


def closure():
    import torch

    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()

    return step


def test_a_report(audit_report):
    report = audit_report(closure(), steps=6, warmup=1, select="NUM")
    assert report.run.steps == 6 and report.run.outcome == "completed"
    assert {each.code[:3] for each in report.verdicts} == {"NUM"}
    assert "Audit of" in report._repr_markdown_()


def test_a_step_that_fails():
    from auditor.testing import assert_no_findings

    def step():
        raise ValueError("no batch")

    assert_no_findings(step, steps=6, select="NUM")
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suite")
    (folder / "test_suite.py").write_text(SUITE)
    words = ("-p", "no:audit", "-p", "auditor.pytest_plugin", "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words, "-v", "-W", "error::pytest.PytestWarning"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        check=False,
    )


PASSED = ("nothing_heavy_was_imported_to_collect", "keeps_none", "a_report")
FAILED = """
    keeps_graphs trains_nothing has_an_unknown_option fails_by_itself a_step_that_fails
""".split()


@pytest.mark.parametrize("name", PASSED)
def test_it_passes(run, name):
    assert f"::test_{name} PASSED" in run.stdout, run.stdout[-3000:] + run.stderr


@pytest.mark.parametrize("name", FAILED)
def test_it_fails(run, name):
    assert f"::test_{name} FAILED" in run.stdout, run.stdout[-3000:]


def test_a_failure_has_line_price_and_patch(run):
    told = run.stdout.partition("_ test_keeps_graphs _")[2].partition("\n____")[0]
    line = SUITE.splitlines().index("        kept.append(loss if keep else loss.detach())") + 1
    assert told.count(f"test_suite.py:{line}: ") == 1 and told.count(" GRAPH001: ") == 1
    assert "  price: " in told and "  remedy: " in told
    assert "site-packages" not in told and "pytest_plugin.py" not in told


def test_other_failures_say_what_to_do(run):
    assert "During handling of the above exception" not in run.stdout
    assert "no optimizer stepped in it" in run.stdout
    assert "does not take loud" in run.stdout
    assert "RuntimeError: its own" in run.stdout
    assert "the step did not complete (raised): ValueError: no batch" in run.stdout


# -- what fails ------------------------------------------------------------------------------------


SITE = Site("trainer.py", 12, "step", "total += loss.item()")


def report(*findings, outcome="completed", statuses=("clean",)):
    run = Run("t:step", 3, 0, 1, "cpu", outcome, None, None, PeakBytes(), "2", "3", "now")
    told = (Verdict(f"T00{n}", "t", status, "why") for n, status in enumerate(statuses))
    return Report(run, tuple(told), findings)


def finding(severity):
    edit = Edit(SITE, "detach", safe=True)
    remedy = Remedy("keep it on the device", (edit,), diff="--- a/t\n+++ b/t\n-x\n+y\n")
    return Finding(
        SITE,
        "reads \x1b[31mit",
        code="SYNC001",
        severity=severity,
        remedy=remedy,
        lost_us_per_step=1200.0,
        basis="measured",
    )


def test_line_price_and_patch_are_in_the_message():
    with pytest.raises(FindingsFound) as raised:
        check(report(finding(Severity.WARNING)))
    told = str(raised.value)
    assert "trainer.py:12: warning SYNC001: reads \\x1b[31mit" in told
    assert "    total += loss.item()" in told and "  price: 1.2 ms / step" in told
    assert "  patch (safe):" in told and "    +y" in told
    assert raised.value.report.findings


@pytest.mark.parametrize(
    ("made", "fail_on", "fails"),
    [
        (report(), "note", False),
        (report(finding(Severity.NOTE)), "warning", False),
        (report(finding(Severity.NOTE)), "note", True),
        (report(finding(Severity.WARNING)), "error", False),
        (report(finding(Severity.ERROR)), "error", True),
        (report(outcome="raised"), "error", True),
        (report(statuses=("clean", "failed")), "error", True),
        (report(statuses=("skipped", "skipped")), "error", True),
        (report(statuses=("skipped", "clean")), "note", False),
    ],
)
def test_what_fails(made, fail_on, fails):
    if not fails:
        check(made, fail_on)
        return
    with pytest.raises(FindingsFound):
        check(made, fail_on)


def test_the_plugin_is_registered_as_audit():
    written = (ROOT / "pyproject.toml").read_text()
    told = written.partition("[project.entry-points.pytest11]\n")[2].partition("\n\n")[0]
    assert told == f'audit = "{pytest_plugin.__name__}"'
