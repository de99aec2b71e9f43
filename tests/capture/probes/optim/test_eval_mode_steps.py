"""Steps of an optimizer on modules that stayed in eval mode."""

import pytest
from auditor.rules.cfg.probes import train_mode_forwards
from auditor.rules.cfg.probes.train_mode_forwards import EvalModeStepsProbe
from torch import nn

from tests.capture.drive import Drive, load

SOURCE = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
MODES = {}
count = 0

def step():
    global count
    optimizer.zero_grad()
    model(torch.ones(2, 8)).mean().backward()
    optimizer.step()
    mode = MODES.get(count)
    if mode is not None:
        model.train(mode)  # changes
    count += 1
"""


def rows_of(tmp_path, modes, steps=8):
    user = load(tmp_path, SOURCE)
    user.MODES = modes
    with Drive(tmp_path, EvalModeStepsProbe) as drive:
        drive.run("loud", user.step, steps)
        return user, drive.rows("switched")


def test_steps_before_the_pass_count_as_well(tmp_path):
    user = load(tmp_path, SOURCE)
    user.MODES = {1: False}
    with Drive(tmp_path, EvalModeStepsProbe) as drive:
        drive.run("quiet", user.step, 4)
        drive.run("loud", user.step, 2)
        (row,) = drive.rows("switched")
    assert (row["before"], row["steps"]) == (2, 4)


def test_only_so_many_changes_are_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(train_mode_forwards, "SWITCHES", 2)
    _, rows = rows_of(tmp_path, {1: False, 2: True, 3: False})
    assert [row["steps"] for row in rows] == [1]


@pytest.mark.parametrize(
    ("module", "differs"),
    [
        (nn.Dropout(0.1), True),
        (nn.Dropout(0.0), False),
        (nn.BatchNorm2d(3), True),
        (nn.BatchNorm2d(3, track_running_stats=False), False),
        (nn.LSTM(2, 2, num_layers=2, dropout=0.1), True),
        (nn.LSTM(2, 2, num_layers=2), False),
        (nn.MultiheadAttention(4, 2, dropout=0.1), True),
        (nn.MultiheadAttention(4, 2), False),
        (nn.LayerNorm(3), False),
    ],
)
def test_what_acts_otherwise(module, differs):
    assert train_mode_forwards.differs(module) == differs


def test_what_the_users_train_raises_goes_on_and_later_changes_are_seen(tmp_path):
    class Odd(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            raise KeyError(mode)

    with Drive(tmp_path, EvalModeStepsProbe) as drive, drive.running("loud"):
        odd, model = nn.Sequential(Odd(nn.Dropout(0.5))), nn.Sequential(nn.Dropout(0.5))
        with pytest.raises(KeyError):
            odd.eval()
        assert not model.eval()[0].training
        assert not drive.probes[0]._changing
