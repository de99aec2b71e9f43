"""``scaler.unscale_(optimizer)`` as it would be written, where it is clear."""

import pytest
from auditor.rules.amp.precision import either_or, unscale_call

from auditor.evidence.source.files import Source
from auditor.model import Site

STEP = """\
def step(self):
    self.scaler.scale(loss).backward()
    clip(model)
    self.scaler.step(self.optimizer)
def other():
    scaler.scale(loss)
    scaler.step(opt)
"""
WRITTEN = "self.scaler.unscale_(self.optimizer)"


@pytest.mark.parametrize(
    ("text", "line", "written"),
    [
        (STEP, 1, WRITTEN),
        (STEP, 3, WRITTEN),
        (STEP, 4, WRITTEN),
        (STEP, 5, "scaler.unscale_(opt)"),
        (STEP.replace("self.scaler.scale(loss)", "loss"), 3, ""),
        (STEP.replace("self.scaler.scale(loss)", "other.scale(loss)"), 3, ""),
        (STEP.replace("clip(model)", "self.scaler.step(second)"), 3, ""),
        (STEP.replace("clip(model)", "self.scaler.unscale_(second)"), 3, ""),
        (STEP.replace("step(self.optimizer)", "step(self.optimizer, 1)"), 3, ""),
        (STEP.replace("step(self.optimizer)", "step(self.optimizer, closure=1)"), 3, ""),
        (STEP.replace("step(self.optimizer)", "step(self.optimizers[0])"), 3, ""),
        ("scaler.scale(loss)\nscaler.step(opt)\n", 1, "scaler.unscale_(opt)"),
        ("", 1, ""),
    ],
)
def test_the_call_of_the_function_around_a_line(text, line, written):
    assert unscale_call(Source({"train.py": text}), Site("train.py", line)) == written


TURNS = """\
if turn == 0:
    scaler.update()
else:
    log(); scaler.update()
if turn == 1:
    scaler.update()
elif turn == 2:
    log()
"""


@pytest.mark.parametrize(("line", "either"), [(1, False), (2, True), (4, True), (6, False)])
def test_a_call_that_each_branch_makes_runs_once(line, either):
    source = Source({"trainer.py": TURNS})
    assert either_or(source, Site("trainer.py", line, "step")) is either
