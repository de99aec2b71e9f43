"""Modules called in train mode with gradients off: is it an evaluation, and which line is it?"""

import textwrap

import pytest
from auditor.rules.cfg.modes import evaluation

from auditor.evidence.source.files import Source
from auditor.model import Site

DECORATED = """
@torch.no_grad()
def measure(x, y):
    out = model(x)  # at within
    return criterion(out, y)
"""
METRIC = """
def train():
    with torch.inference_mode():
        for x, y in batches:
            metric.update(model(x), y)  # at within
"""
MODELS_LOSS = """
def train():
    with torch.no_grad():
        out = model(**batch)  # at within
        total = out.loss
"""
CALLER_IS_OFF = """
def measure(x, y):
    return accuracy(model(x), y)  # at
def train():
    with torch.no_grad():
        measure(x, y)  # within
"""
SHARED = """
def loss_of(x, y):
    return criterion(model(x), y)  # at
def train():
    loss_of(x, y).backward()
    with torch.no_grad():
        loss_of(x_held, y_held)  # within
"""
BY_HAND = """
@torch.no_grad()
def validate(x, y):
    return (model(x) - y).abs().mean()  # at within
"""
NAMED_BY_THE_LOADER = """
def train():
    with torch.no_grad():
        for x, y in valLoader:
            out = model(x)  # at within
            right = out.eq(y).sum()
"""
SQUARED = BY_HAND.replace("(model(x) - y).abs()", "((model(x) - y) ** 2)")
EPOCH_OF_EITHER = """
def run_epoch(data, train):
    for x, y in data:
        with torch.set_grad_enabled(train):
            out = model(x)  # at within
            loss = crit(out, y)
        if train:
            loss.backward()
"""

NOT_COMPARED = """
@torch.no_grad()
def sample(z):
    images = model(z)  # at within
    save(images, "x.png")
"""
DIFFERENCE_UNNAMED = BY_HAND.replace("validate", "measure")
NUMBER = """
@torch.no_grad()
def measure(x):
    return (model(x) == 1).sum()  # at within
"""
ASKED_FOR = """
@torch.no_grad()
def measure(x, y):
    model.train()
    return criterion(model(x), y)  # at within
"""
SAID = """
@torch.no_grad()
def update_bn(x, y):
    return criterion(model(x), y)  # at within
"""
REPEATED = """
@torch.no_grad()
def validate(x, y):
    total = 0
    for _ in range(8):
        total = total + model(x)  # at within
    return criterion(total, y)
"""
SAME_BATCH = """
def train(x, y):
    criterion(model(x), y).backward()
    with torch.no_grad():
        right = (model(x).argmax(1) == y)  # at within
"""
TARGETS = """
def train(x, z):
    with torch.no_grad():
        aim = model(x)  # at within
        sure = aim.argmax(1) == y
    criterion(student(z), aim).backward()
"""
CHOSEN = """
def train(x, y):
    with torch.no_grad():
        losses = criterion(model(pool), y)  # at within
        first = losses.argsort()
    criterion(student(pool[first]), y).backward()
"""
BROKEN = "def broken(:\n    criterion(model(x), y)  # at within"


def evaluated(text):
    text = textwrap.dedent(text)
    lines = [
        next(n for n, said in enumerate(text.split("\n"), 1) if mark in said.partition("#")[2])
        for mark in ("at", "within")
    ]
    at, within = (Site("trainer.py", line) for line in lines)
    return lines, evaluation(Source({"trainer.py": text}), at, within)


@pytest.mark.parametrize(
    ("text", "line", "named"),
    [
        (DECORATED, 0, False),
        (METRIC, 0, False),
        (MODELS_LOSS, 0, False),
        (CALLER_IS_OFF, 0, False),
        (SHARED, 1, False),
        (EPOCH_OF_EITHER, 0, False),
        (BY_HAND, 0, True),
        (SQUARED, 0, True),
        (NAMED_BY_THE_LOADER, 0, True),
    ],
)
def test_evaluations(text, line, named):
    lines, found = evaluated(text)
    assert (found.site.line, found.named) == (lines[line], named)


@pytest.mark.parametrize(
    "text",
    [
        NOT_COMPARED,
        DIFFERENCE_UNNAMED,
        NUMBER,
        ASKED_FOR,
        SAID,
        REPEATED,
        SAME_BATCH,
        TARGETS,
        CHOSEN,
        BROKEN,
    ],
)
def test_other_calls(text):
    assert evaluated(text)[1] is None
