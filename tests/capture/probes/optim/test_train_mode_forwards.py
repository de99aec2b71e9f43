"""Trained modules that are called in train mode with gradients off."""

from auditor.rules.cfg.probes.train_mode_forwards import TrainModeForwardsProbe

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from tests.capture.drive import Drive, load

SOURCE = """
import contextlib
import torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1))
frozen = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
every = 3
count = 0
raised = []

def scored(model):
    return model(torch.ones(2, 8))  # called

@torch.no_grad()
def decorated():
    for _ in range(3):
        scored(model)  # within

def in_eval_mode():
    with torch.no_grad():
        model.eval()
        scored(model)
        model.train()

def untrained():
    with torch.inference_mode():
        frozen(torch.ones(2, 8))

def with_gradients():
    with torch.set_grad_enabled(True):
        scored(model)

def raises():
    with contextlib.suppress(ValueError), torch.set_grad_enabled(False):
        scored(model)  # within_raising
        raise ValueError

evaluate = decorated

def step():
    global count
    optimizer.zero_grad()
    model(torch.ones(2, 8)).mean().backward()
    optimizer.step()
    count += 1
    if count % every == 0:
        evaluate()
"""


def rows_of(tmp_path, evaluate, steps=9, **more):
    user = load(tmp_path, SOURCE)
    user.evaluate = getattr(user, evaluate)
    for name, value in more.items():
        setattr(user, name, value)
    with Drive(tmp_path, TrainModeForwardsProbe) as drive:
        drive.run("loud", user.step, steps)
        assert not drive.warnings
        return user, drive.rows("train_mode_forwards")


def test_programs_that_compile_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(COMPILED_CODE, "compiles", 1)
    assert rows_of(tmp_path, "decorated")[1] == []
