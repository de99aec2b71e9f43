"""The pass that times Python loops: where it comes, and what it writes."""

import sys
from pathlib import Path
from typing import Any

import pytest

from auditor.recordings.schema.numerics import LoopTimeRow
from tests.capture.drive import load
from tests.inprocess import record

SOURCE = """
import time
import torch

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.ones(16, 4, requires_grad=True)

def whole():
    net(x).sum().backward()
    optimizer.step()

def looped():
    loss = 0
    for row in x:
        loss = loss + net(row).square().sum()
        time.sleep(0.0005)
    loss.backward()
    optimizer.step()

def nested():
    out = torch.empty(16, 4)
    with torch.no_grad():
        for number in range(16):
            out[number] = double(x[number])
    whole()

def double(row):
    time.sleep(0.0005)
    return row * 2
"""
PARTS = ("piecewise", "turns")


@pytest.fixture(autouse=True)
def no_tracer():
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


def passes(folder: Path, name: str, **more: Any):
    user = load(folder, SOURCE)
    room = folder / "recording"
    made = record(room, lambda: getattr(user, name), PARTS, roots=[folder], steps=4, **more)
    return made, {each["name"]: each["steps"] for each in made.manifest["passes"]}


@pytest.mark.parametrize("name", ["looped", "nested"])
def test_loops_that_were_found_are_timed(tmp_path, name):
    made, steps = passes(tmp_path, name, device="cpu")
    assert steps["loops"] == 5 and sys.gettrace() is None
    rows = made.rows(LoopTimeRow)
    assert {row.pass_name for row in rows} == {"loops"}
    assert {row.step for row in rows} == set(range(5))
    assert min(row.us for row in rows) >= 8000.0


def test_without_loops_there_is_no_such_pass(tmp_path):
    made, steps = passes(tmp_path, "whole", device="cpu")
    assert "loops" not in steps and not made.rows(LoopTimeRow)


def test_a_rehearsal_times_nothing(tmp_path):
    _, steps = passes(tmp_path, "looped", device="rehearse")
    assert "loops" not in steps


def test_where_a_debugger_traces_nothing_is_timed(tmp_path):
    sys.settrace(lambda frame, event, arg: None)
    made, steps = passes(tmp_path, "looped", device="cpu")
    assert sys.gettrace() is not None
    sys.settrace(None)
    assert steps["loops"] == 5 and not made.rows(LoopTimeRow)
