"""What the probe writes of hooks, and that the program's own are put back."""

from __future__ import annotations

import torch
from auditor.rules.comp.probes import late_hooks
from auditor.rules.comp.probes.late_hooks import WAYS, LateHooksProbe

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from tests.capture.drive import Drive, line_of, load
from tests.capture.test_compiled import fresh

PROGRAM = """
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
compiled = torch.compile(net, backend="eager")
x, seen = torch.ones(2, 4), []

def known(module, inputs, output):
    seen.append("known")

own = lambda module, inputs, output: seen.append("own")
# BEFORE
compiled(x).sum().backward()
net[0].register_forward_hook(known)  # by name
kept = net[0].register_forward_hook(own, prepend=True)  # own
way = lambda module, inputs: seen.append("pre")
net[1].register_forward_pre_hook(hook=way)  # pre

def step():
    compiled(x).sum().backward()

def eager():
    net(x).sum().backward()

def removing():
    kept.remove()
    eager()
"""


def recorded(tmp_path, *passes, text=PROGRAM):
    fresh()
    before = [getattr(torch.nn.Module, name) for name in WAYS]
    COMPILED_CODE.install()
    try:
        with Drive(tmp_path, LateHooksProbe) as drive:
            program = load(tmp_path, text)
            for name, step, steps in passes:
                drive.run(name, getattr(program, step), steps)
            program.told = drive.rows("late_hooks")
    finally:
        COMPILED_CODE.uninstall()
    assert [getattr(torch.nn.Module, name) for name in WAYS] == before
    assert drive.warnings == []
    return program


def told(program):
    return [
        (row["pass"], row["at_line"], row["what"], row["steps"], row.get("ran", 0))
        for row in program.told
    ]


def test_compiled_code_calls_none_of_them_and_python_does(tmp_path):
    program = recorded(tmp_path, ("quiet", "step", 3), ("eager_held", "eager", 2))
    own, pre = line_of(program, "own"), line_of(program, "pre")
    assert told(program) == [
        ("quiet", own, "Linear", 3, 0),
        ("quiet", pre, "ReLU", 3, 0),
        ("eager_held", own, "Linear", 2, 2),
        ("eager_held", pre, "ReLU", 2, 2),
    ]
    assert not any(row.get("again") for row in program.told)
    assert program.seen == ["own", "known", "pre"] * 2


def test_the_programs_own_hooks_are_put_back(tmp_path):
    program = recorded(tmp_path, ("quiet", "eager", 1))
    hooks = list(program.net[0]._forward_hooks.values())
    assert hooks == [program.own, program.known]
    assert list(program.net[1]._forward_pre_hooks.values()) == [program.way]


def test_hooks_that_are_gone_are_not_told(tmp_path):
    program = recorded(tmp_path, ("quiet", "removing", 2))
    assert told(program) == [("quiet", line_of(program, "pre"), "ReLU", 2, 2)]


def test_so_many_hooks_of_a_line_are_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(late_hooks, "MOST", 0)
    program = recorded(tmp_path, ("quiet", "eager", 1))
    assert told(program) == []
    assert program.net[0]._forward_hooks


def test_a_layer_that_had_a_hook_is_compiled_anew_for_the_next(tmp_path):
    first = "net[0].register_forward_hook(lambda module, inputs, output: None)"
    passes = ("quiet", "step", 3), ("eager_held", "eager", 1)
    program = recorded(tmp_path, *passes, text=PROGRAM.replace("# BEFORE", first))
    assert [row.get("again", False) for row in program.told] == [True] * 4
    assert program.seen == ["own", "known", "pre"] * 4  # the compiler traced them
