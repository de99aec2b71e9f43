"""A finding is one, whichever door a program comes through."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses = []


def step():
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
DOORS = """
import json
import sys

import auditor
from IPython.core.interactiveshell import InteractiveShell

import cpu_only

chosen = {"select": "SYNC", "steps": 12}
reports = {
    "audit": auditor.audit("cpu_only:step", **chosen),
    "on one": auditor.audit("cpu_only:step", **chosen, **json.loads(sys.argv[1])),
    "here": auditor.audit(cpu_only.step, here=True, **chosen),
}
with auditor.watch(**chosen) as watched:
    for _ in range(30):
        cpu_only.step()
reports["watch"] = watched.report
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "auditor")
shell.user_ns["cpu_only"] = cpu_only
cell = "for _ in range(30): cpu_only.step()"
reports["cell"] = shell.run_cell_magic("audit", "--select SYNC --steps 12", cell)
print(json.dumps({
    door: [[each.code, each.severity.value] for each in report.findings]
    for door, report in reports.items()
}))
"""
SUITE = """
import pytest

import cpu_only


@pytest.mark.audit(select=["SYNC", "GRAPH"], steps=12)
def test_reads():
    for _ in range(30):
        cpu_only.step()


@pytest.mark.audit(select=["SYNC", "GRAPH"], steps=12, fail_on="note")
def test_reads_strictly():
    for _ in range(30):
        cpu_only.step()
"""


@pytest.mark.full
def test_a_read_where_nothing_uses_a_gpu_is_no_wait_through_all_doors(tmp_path):
    files = {"cpu_only.py": PROGRAM, "doors.py": DOORS, "test_suite.py": SUITE}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    env = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}

    def said(*words: str) -> str:
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True).stdout

    told = json.loads(said("doors.py", json.dumps({"device": "cpu"})).splitlines()[-1])
    assert told == dict.fromkeys(told, [])
    shown = said("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_suite.py")
    assert "2 passed" in shown, shown
