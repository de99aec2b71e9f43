"""Lines that put a module into eval mode: is it for an evaluation?"""

import textwrap

import pytest

from auditor.evidence.source.files import Source
from auditor.evidence.source.loops import evaluates
from auditor.model import Site

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


@pytest.mark.parametrize(
    ("text", "off"),
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
def test_what_follows_evaluates(text, off):
    text = textwrap.dedent(text)
    line = next(n for n, said in enumerate(text.split("\n"), 1) if "model.eval()" in said)
    assert evaluates(Source({"trainer.py": text}), Site("trainer.py", line)) is off
