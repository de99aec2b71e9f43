"""``auditor.audit`` and ``auditor.watch``: what they return, and that all is left as it was."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from auditor.reports import as_json
from torch.optim import optimizer as optimizers

import auditor
from auditor import api
from auditor.capture import here
from auditor.errors import AuditProblem
from auditor.extensions.verify.arms import require_unchanged
from auditor.model import Severity
from auditor.recordings.folder import Recording

ROOT = Path(__file__).resolve().parents[2]


def training():
    torch.manual_seed(7)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    kept = []

    def step():
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        kept.append(loss)

    return model, step


def hooks():
    return (
        len(optimizers._global_optimizer_post_hooks),
        len(optimizers._global_optimizer_pre_hooks),
        torch.optim.Optimizer.__init__,
        torch.autograd.backward,
        torch.Tensor.item,
        torch.Tensor.backward,
    )


@pytest.mark.parametrize("step", [dict, lambda batch, labels: None])
def test_what_takes_no_step_is_refused(step):
    with pytest.raises(AuditProblem, match="class|wants arguments"):
        auditor.audit(step, steps=6)


def test_a_closure_is_audited_here(tmp_path):
    _, step = training()
    before = hooks()
    report = auditor.audit(step, steps=12, warmup=1, select=["GRAPH001"], out=tmp_path / "out")
    assert hooks() == before
    assert isinstance(report, auditor.Report) and report.run.outcome == "completed"
    (found,) = report.findings
    assert found.code == "GRAPH001" and found.site.text == "kept.append(loss)"
    assert api.HERE in report.warnings
    assert {each.name for each in (tmp_path / "out").iterdir()} >= {"report.json", "report.html"}
    written = as_json.read(tmp_path / "out" / "report.json")
    assert written.findings[0].key == found.key
    assert report.run.in_process and written.run.in_process
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "audit fix" in page and "audit verify </" not in page and "cannot measure" in page
    with pytest.raises(AuditProblem, match="in its own process"):
        require_unchanged(Recording(tmp_path / "out" / "recording"))
    with pytest.raises(AuditProblem, match="already holds a recording"):
        auditor.audit(step, steps=6, out=tmp_path / "out")


def test_the_report_shows_itself():
    _, step = training()
    report = auditor.audit(step, steps=12, warmup=1, select=["GRAPH001"])
    assert repr(report).startswith(
        "<auditor.Report of tests.api.test_python:training.<locals>.step"
    )
    assert "1 finding" in repr(report) and "GRAPH001" in str(report)
    piece = report._repr_markdown_()
    assert piece.startswith("### Audit of") and "GRAPH001" in piece and "<locals>" not in piece
    assert json.loads(report.render("json"))["schema"] == "audit-report/1"
    assert report.at_least("note") == report.findings == report.at_least("warning")
    note = replace(report.findings[0], severity=Severity.NOTE)
    noted = replace(report, findings=(note,))
    assert noted.at_least("note") == (note,) and not noted.at_least("warning")


def trained(steps, *, watched):
    model, step = training()
    if watched:
        with auditor.watch(steps=steps - 4, select=["GRAPH001", "NUM"]) as seen:
            for _ in range(steps):
                step()
        assert seen.report.run.outcome == "completed"
        assert "GRAPH001" in {each.code for each in seen.report.findings}
    else:
        for _ in range(steps):
            step()
    return [*model.parameters(), torch.randn(3)]


def test_watching_changes_no_bit_and_leaves_nothing():
    before = hooks()
    seen = trained(24, watched=True)
    assert hooks() == before
    for one, other in zip(seen, trained(24, watched=False), strict=True):
        assert torch.equal(one, other)


def test_a_block_that_ends_early_or_raises_has_a_report():
    _, step = training()
    with auditor.watch(steps=40, select=["GRAPH001"]) as seen:
        for _ in range(10):
            step()
    assert any("took 9 of 40 steps" in words for words in seen.report.warnings)
    with pytest.raises(ZeroDivisionError), auditor.watch(steps=20, select=["NUM"]) as seen:
        for _ in range(8):
            step()
        _ = 1 / 0
    assert seen.report.run.outcome == "raised"
    assert seen.report.run.error.type == "ZeroDivisionError"


def test_a_block_without_a_step_is_told():
    with pytest.raises(AuditProblem, match="no optimizer stepped"), auditor.watch(select="NUM"):
        pass
    with pytest.raises(KeyError), auditor.watch(select="NUM") as seen:
        raise KeyError("before the first step")
    with pytest.raises(RuntimeError, match="when the watched block has ended"):
        _ = seen.report


def test_a_fault_of_ours_ends_no_loop(monkeypatch):
    _, step = training()

    def broken(self, target):
        raise KeyError("ours")

    monkeypatch.setattr(here.Here, "_next_step", broken)
    with pytest.raises(AuditProblem, match="no optimizer stepped"):
        with auditor.watch(select="NUM"):
            step()
            step()


def test_what_cannot_be_done_is_told():
    _, step = training()
    with pytest.raises(AuditProblem, match="another audit is going on"), here.alone():
        auditor.audit(step, steps=6, select="NUM")
    for options, said in (
        ({"device": "rehearse"}, "needs a process of its own"),
        ({"timeout": 5}, "nothing ends a step here"),
        ({"here": False}, "cannot be imported by its name"),
        ({"select": "NOPE9"}, "NOPE9"),
    ):
        with pytest.raises(AuditProblem, match=said):
            auditor.audit(step, **options)
    with pytest.raises(AuditProblem, match="give the function instead"):
        auditor.audit("trainer:step", here=True)
    with pytest.raises(AuditProblem, match="at least 6 steps"), auditor.watch(steps=5):
        pass
    told = []

    def elsewhere():
        try:
            auditor.audit(step, steps=6, select="NUM")
        except AuditProblem as problem:
            told.append(problem.message)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "main thread" in told[0]


def test_which_functions_another_process_finds(tmp_path, monkeypatch):
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    body = "class T:\n    @staticmethod\n    def step(): pass\n    def bound(self): pass\n"
    (folder / "mod.py").write_text(body + "def step(): pass\nalias = lambda: None\n")
    monkeypatch.syspath_prepend(tmp_path)
    from pack import mod

    file = str(folder / "mod.py")
    assert api.target_of(mod.step) == f"{file}:step"
    monkeypatch.chdir(tmp_path)
    assert api.target_of(mod.step) == "pack.mod:step"
    assert api.target_of(mod.T.step) == "pack.mod:T.step"
    assert api.target_of(mod.T().bound) is None
    assert api.target_of(mod.alias) is None
    assert api.target_of(training()[1]) is None
    monkeypatch.setattr(mod, "step", lambda: None)
    assert api.target_of(mod.step) is None, "what was put in its place is found by no other process"


TRAINER = """
import os
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
def step():
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss)
"""

CALL = """
import sys
import auditor
assert "torch" not in sys.modules and "auditor.cli" not in sys.modules
report = auditor.audit("trainer:step", steps=8, select=["GRAPH001"])
assert "torch" not in sys.modules
print(report.findings[0].site, auditor.api.HERE in report.warnings)
"""


def test_a_target_runs_in_a_process_of_its_own(tmp_path):
    (tmp_path / "trainer.py").write_text(TRAINER)
    done = subprocess.run(
        [sys.executable, "-c", CALL],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout == "trainer.py:12 False\n", done.stderr
    assert [each.name for each in tmp_path.iterdir() if each.suffix == ".json"] == []


@pytest.mark.parametrize("options", [{"keep": 3}, {"budget": 0.1}, {"log_to": print}])
def test_what_belongs_to_a_long_run_needs_every(options):
    with pytest.raises(AuditProblem, match="give every=1000 too"):
        auditor.watch(**options)
