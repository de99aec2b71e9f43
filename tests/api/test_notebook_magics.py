"""``%load_ext auditor`` in a real IPython shell, and in a notebook with a kernel of its own."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

pytest.importorskip("IPython")

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

import auditor
from auditor import notebook_magics
from auditor.errors import AuditProblem
from tests.reports import golden_report as golden

TRAINING = """
import torch
torch.manual_seed(7)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []

def step():
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
    kept.append(loss)
"""
LOOP = "for number in range(14):\n    step()\n"


@pytest.fixture
def shell(tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    config = Config()
    config.HistoryManager.enabled = False
    InteractiveShell.clear_instance()
    made = InteractiveShell.instance(config=config)
    ran(made, "%load_ext auditor")
    ran(made, TRAINING)
    yield made
    made.reset(new_session=False)  # else its names, in __main__, are those of later audits, too
    made.restore_sys_module_state()
    InteractiveShell.clear_instance()


def ran(shell, cell):
    with capture_output() as said:
        result = shell.run_cell(cell)
    result.raise_error()
    return result.result, said.stdout


def failed(shell, cell):
    with capture_output() as said:
        result = shell.run_cell(cell)
    shown = "".join(each.data["text/markdown"] for each in said.outputs)
    return result.error_in_exec or result.error_before_exec, shown + said.stdout + said.stderr


def codes(report):
    return {finding.code for finding in report.findings}


def test_a_cell_is_audited_in_the_notebooks_own_names(shell):
    report, _ = ran(shell, f"%%audit --steps 10 --select GRAPH001 --name seen\n{LOOP}total = 3")
    assert isinstance(report, auditor.Report)
    assert codes(report) == {"GRAPH001"}
    assert shell.user_ns["seen"] is report and report.run.in_process
    assert shell.user_ns["number"] == 13 and shell.user_ns["total"] == 3
    assert len(shell.user_ns["kept"]) == 14
    assert "GRAPH001" in report._repr_markdown_()


KEEPING = """
def keep(losses=[]):
    losses.append(model(torch.randn(4, 8)).pow(2).mean())
"""


def test_a_finding_is_at_the_line_of_its_cell(shell):
    shell.run_cell(KEEPING, store_history=True)
    cell = (
        f"%%audit --steps 10 --select GRAPH001\n{LOOP}    keep()\n    kept.append(kept[-1] + 1)\n"
    )
    with capture_output():
        report = shell.run_cell(cell, store_history=True).result
    places = {str(each.site) for each in report.findings}
    assert "In[2]:5" in places, "the line as the cell counts it, its magic the first"
    shown = report.excerpts["In[2]:5"]
    assert "kept.append(kept[-1] + 1)" in shown.lines[5 - shown.first]
    assert any(place.startswith("In[1]:") for place in places), "a function of another cell"
    assert not any(f.remedy and f.remedy.diff for f in report.findings)


MANY = """import torch
class Trainer:
    def __init__(self):
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.losses = []
    def step(self):
        x = torch.randn(4, 8)
        loss = self.model(x).square().mean()
        self.opt.zero_grad()
        torch.autograd.set_detect_anomaly(True)
        loss.backward(retain_graph=True)
        self.opt.step()
        self.losses.append(loss)
trainer = Trainer()
"""


def test_every_rule_that_names_a_place_names_the_cells_line(shell):
    shell.run_cell(MANY, store_history=True)
    cell = "%%audit --steps 50\nfor i in range(60):\n    trainer.step()\n"
    with capture_output(), torch.autograd.set_detect_anomaly(False):  # the cell leaves it on
        report = shell.run_cell(cell, store_history=True).result
    places = {(each.code, str(each.site)) for each in report.findings}
    assert places >= {("NUM009", "In[1]:11"), ("GRAPH002", "In[1]:12"), ("GRAPH001", "In[1]:14")}


def test_a_step_is_audited_by_its_name_or_as_an_expression(shell):
    report, _ = ran(shell, "%audit --steps 8 --select GRAPH001 step")
    assert codes(report) == {"GRAPH001"}
    report, _ = ran(shell, "found = %audit --steps 8 --select NUM [step, None][0]")
    assert shell.user_ns["found"].run.steps == 8


def test_a_target_is_audited_in_its_own_process(shell, monkeypatch):
    asked = []
    report = replace(golden.silent_report())

    def audited(step, **options):
        asked.append((step, options))
        return report

    monkeypatch.setattr("auditor.api.audit", audited)
    assert ran(shell, "%audit --steps 6 package.trainer:step")[0] is report
    assert asked == [
        ("package.trainer:step", {"steps": 6, "select": "", "ignore": "", "out": None})
    ]


def test_what_a_cell_raises_is_raised_behind_its_report(shell):
    error, said = failed(shell, f"%%audit --steps 20 --select NUM\n{LOOP}1 / 0")
    assert isinstance(error, ZeroDivisionError)
    shown = "20 steps on cpu"
    assert shown in said and said.index(shown) < said.index("division by zero")
    error, said = failed(shell, "%%audit\nundefined_name")
    assert isinstance(error, NameError) and "the watched block" not in said


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("%%audit --select NUM\nx = 1", "no optimizer stepped"),
        ("%%audit --steps 2\nx = 1", "at least 6 steps"),
        ("%%audit --what\nx = 1", "--what"),
        ("%%audit --steps many\nx = 1", "many"),
        ("%audit", "step"),
        ("%audit --select NOPE9 step", "NOPE9"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(shell, cell, words):
    error, said = failed(shell, cell)
    assert type(error).__name__ == "UsageError"
    assert words in str(error) and "Traceback" not in said
    assert len(shell.user_ns["kept"]) == 0


def test_a_shell_that_only_loads_it_imports_nothing_heavy():
    program = (
        "import sys, auditor; auditor.load_ipython_extension(type('S', (), "
        "{'register_magic_function': lambda *a: print(a[2:])})())\n"
        "print(sorted({'torch', 'numpy', 'IPython', 'auditor.api'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["('line_cell', 'audit')", "[]"]


def test_quotation_marks_that_do_not_end_are_told():
    with pytest.raises(AuditProblem, match="quotation"):
        notebook_magics._parsed("--select 'NUM", cell=True)


@pytest.mark.full
def test_a_notebook(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient").NotebookClient
    pytest.importorskip("ipykernel")
    (tmp_path / "trainer.py").write_text(TRAINING)
    loop = f"%%audit --steps 10 --select GRAPH001\n{LOOP}"
    said = "print(*((each.code, str(each.site), each.message) for each in own.findings))"
    cells = ["%load_ext auditor", "from trainer import step", loop]
    cells += [TRAINING, loop.replace("%%audit", "%%audit --name own"), said]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    client(
        book, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    (shown,) = (each for each in book.cells[2].outputs if each.output_type == "execute_result")
    assert (
        "GRAPH001" in shown.data["text/markdown"] and "<script" not in shown.data["text/markdown"]
    )
    assert "trainer.py:13" in shown.data["text/markdown"] and "diff" in shown.data["text/markdown"]
    assert "cells are in no file" in shown.data["text/markdown"]
    (said,) = book.cells[5].outputs
    assert said.text.startswith(
        "('GRAPH001', 'In[4]:12', 'kept[*] retains the graph of every step"
    ), "a list of the notebook's own, at the cell that fills it"
