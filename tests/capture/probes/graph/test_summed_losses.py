"""Sums of losses whose graphs share nothing but the parameters: which backward calls are written."""

from auditor.rules.graph.probes.summed_losses import SummedLossesProbe

from tests.capture.drive import Drive, load

SOURCE = """
import torch
from torch import nn
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
twin = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
N = 3

def loss(model=net): return model(torch.ones(2, 4)).square().mean()
def from_zero():
    total = torch.zeros(())
    for _ in range(N): total = total + loss() / N
    return total
def in_a_list(): return sum(loss() for _ in range(N))
def stacked(): return torch.stack([loss() for _ in range(N)]).mean()
def scaled(): return 0.5 * (-sum(-loss() for _ in range(N)))
def composed(): return sum(loss() + 0.1 * loss().sqrt() for _ in range(N))
def one_output():
    y = net(torch.ones(6, 4))
    return sum(part.square().mean() for part in y.split(2))
def two_models(): return loss() + loss(twin) + loss()
def one_of_another_form(): return loss() + loss().sqrt() + loss()
def alone(): return loss()
"""


def rows_of(tmp_path, name, losses=3, steps=1):
    user = load(tmp_path, SOURCE + "def step():\n    WHAT().backward()  # walks\n")
    user.N, user.WHAT = losses, getattr(user, name)
    with Drive(tmp_path, SummedLossesProbe) as drive:
        drive.run("loud", user.step, steps)
        return user, drive.rows("summed")


def test_only_the_first_steps_are_looked_at(tmp_path):
    assert len(rows_of(tmp_path, "in_a_list", steps=6)[1]) == 3
