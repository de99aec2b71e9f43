"""The rules of CONTRIBUTING.md work as they stand there: some files, and nothing to register."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r'```\w+ title="([^"]+)"\n(.*?)```', re.DOTALL)
BESIDE = """

def one_group_learns():
    one, two = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
    groups = [{"params": one.parameters(), "lr": 0.0}, {"params": two.parameters(), "lr": 0.1}]
    optimizer = torch.optim.Adam(groups, lr=0.1)

    def step():
        optimizer.zero_grad()
        (one(torch.ones(2, 4)) + two(torch.ones(2, 4))).square().mean().backward()
        optimizer.step()

    return step

frozen, learning = frozen_by_its_rate(), one_group_learns()

def step():
    frozen()
    learning()
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of what is installed, with the files of the page."""
    copy = tmp_path_factory.mktemp("checkout")
    left_out = shutil.ignore_patterns("__pycache__")
    for room in ("auditor", "rules", "reports"):
        shutil.copytree(ROOT / room, copy / room, ignore=left_out)
    shutil.copy(ROOT / "pyproject.toml", copy)
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## A new rule")[2]
    files = BLOCK.findall(section)
    assert len(files) == 5 + 3
    for name, text in files:
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.read_text()}\n\n{text}" if path.exists() else text)
    return copy


def run(checkout, *arguments):
    env = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=checkout,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_finds_the_line_of_its_case_and_no_other(checkout):
    fires = (checkout / "tests/rules/opt099/fires.py").read_text()
    (checkout / "program.py").write_text(fires + BESIDE)
    options = ("--device", "cpu", "--select", "OPT099", "--steps", "8", "--quiet")
    run(checkout, "auditor", "run", "program.py:step", "--out", "out", *options)
    (finding,) = json.loads((checkout / "out" / "report.json").read_text())["findings"]
    assert finding["site"]["line"] == fires.split("# OPT099")[0].count("\n") + 1
    assert finding["message"].startswith("SGD steps with a learning rate of 0 on all of")


COLLECTS = """
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer.state_dict()

def step():
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
    state = optimizer.state_dict()  # OPT098
"""


def test_a_rule_about_a_line_counts_and_prices_it(checkout):
    (checkout / "collects.py").write_text(COLLECTS)
    options = ("--device", "cpu", "--select", "OPT098", "--steps", "8", "--quiet")
    run(checkout, "auditor", "run", "collects.py:step", "--out", "collected", *options)
    (finding,) = json.loads((checkout / "collected" / "report.json").read_text())["findings"]
    assert finding["site"]["line"] == COLLECTS.split("# OPT098", maxsplit=1)[0].count("\n") + 1
    assert (finding["message"], finding["basis"]) == (
        "state_dict() of an optimizer on 8 of 8 steps",
        "measured",
    )


def test_page_and_rows_are_where_users_look(checkout):
    assert "all of whose learning rates" in run(checkout, "auditor", "explain", "OPT099")
    assert "### zero_rates" in run(checkout, "auditor.recordings.schema")
