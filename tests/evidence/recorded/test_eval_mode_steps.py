"""Modules trained on in eval mode: was it for an evaluation?"""

from __future__ import annotations

import textwrap

import pytest
from auditor.rules.cfg.eval_mode_steps import EvalModeSteps

from tests.evidence.recorded.rows import loud

DECORATED = """
@torch.no_grad()
def validate():
    model.eval()
    return model(x)
"""
BLOCK = """
def validate():
    model.eval()
    with torch.inference_mode():
        return model(x)
"""
CALLED = """
def train():
    model.eval()
    score = accuracy(model)

def accuracy(model):
    with torch.no_grad():
        return model(x)
"""
SWITCHED_OFF = """
model.eval()
torch.set_grad_enabled(False)
"""
BEFORE = """
def train():
    with torch.no_grad():
        average.update(model)
    model.eval()
    model(x).backward()
"""
ALONE = """
def freeze():
    model.eval()

def accuracy():
    with torch.no_grad():
        return model(x)
"""


def table(seen, text, **more):
    text = textwrap.dedent(text)
    line = next(n for n, said in enumerate(text.split("\n"), 1) if "model.eval()" in said)
    row = loud(11, at=0, module="Net", parts={"Dropout": 2}, before=4, steps=3, grads=True)
    return seen(text, sites=[line], switched=[{**row, **more}]).get(EvalModeSteps)


@pytest.mark.parametrize(
    ("text", "evaluates"),
    [
        (DECORATED, True),
        (BLOCK, True),
        (CALLED, True),
        (SWITCHED_OFF, True),
        (BEFORE, False),
        (ALONE, False),
        ("def broken(:\n    model.eval()", False),
    ],
)
def test_what_follows_evaluates(seen, text, evaluates):
    found = list(table(seen, text).after_evaluating(3))
    assert [(each.module, each.before, each.steps) for each in found] == [("Net", 4, 3)] * evaluates


def test_gradients_were_off_already(seen):
    assert len(list(table(seen, ALONE, grads=False).after_evaluating(3))) == 1


@pytest.mark.parametrize(("steps", "found"), [(2, 0), (3, 1)])
def test_so_many_steps_are_asked_for(seen, steps, found):
    assert len(list(table(seen, BLOCK, steps=steps).after_evaluating(3))) == found
