"""States of modules that are kept while an optimizer changes them."""

import pytest
import torch
from auditor.rules.ckpt.probes import kept_states
from auditor.rules.ckpt.probes.kept_states import KeptStatesProbe
from torch import nn

from tests.capture.drive import Drive, line_of, load

SOURCE = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
other = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
count = 0

def take():
    kept.append(model.state_dict())  # takes

def give():
    model.load_state_dict(kept[-1])  # gives

def drop():
    kept.clear()

def write():
    with torch.no_grad():
        for value in kept[-1].values():
            value.mul_(1)

def nothing():
    pass

def step():
    global count
    optimizer.zero_grad()
    model(torch.ones(2, 8)).mean().backward()
    optimizer.step()
    for do in PLAN[count:count + 1]:
        globals()[do]()
    count += 1
"""


def test_only_the_newest_are_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_states, "FOLLOWED", 1)
    user = load(tmp_path, SOURCE)
    user.PLAN = ["nothing"] * 3
    with Drive(tmp_path, KeptStatesProbe) as drive, drive.running("loud", user.step):
        first = user.model.state_dict()
        user.take()
        drive.step(user.step)
        user.model.load_state_dict(first)
    (row,) = drive.rows("states")
    assert (row["at_line"], row["loaded"]) == (line_of(user, "takes"), 0)


def test_what_the_users_hook_raises_goes_on_and_later_states_are_seen(tmp_path):
    def hook(*_):
        raise KeyError("user")

    with Drive(tmp_path, KeptStatesProbe) as drive, drive.running("loud"):
        model = nn.Linear(4, 4)
        handle = model.register_state_dict_pre_hook(hook)
        with pytest.raises(KeyError):
            model.state_dict()
        handle.remove()
        assert not drive.probes[0]._inside
        assert isinstance(model.state_dict()["weight"], torch.Tensor)


def test_states_without_plain_values_are_left_alone(tmp_path):
    with Drive(tmp_path, KeptStatesProbe) as drive, drive.running("loud"):
        lazy, meta = nn.LazyLinear(4), nn.Linear(4, 4, device="meta")
        kept = [lazy.state_dict(), meta.state_dict()]
        meta.load_state_dict(kept[1])
        lazy(torch.ones(1, 3))
    assert drive.rows("states") == [] and drive.warnings == []
