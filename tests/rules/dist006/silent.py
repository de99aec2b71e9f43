"""DIST006 must say nothing about these."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.echo_group import ranks


class _TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(8, 4), nn.Linear(8, 4)])

    def forward(self, x, head):
        return self.heads[head](x)


def _training(model, forward):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        forward(model).square().mean().backward()
        optimizer.step()

    return step


def a_head_is_left_out():
    ranks()
    model = DistributedDataParallel(_TwoHeads(), find_unused_parameters=True)
    return _training(model, lambda model: model(torch.randn(8, 8), 0))


def the_heads_take_turns():
    ranks()
    model = DistributedDataParallel(_TwoHeads(), find_unused_parameters=True)
    turns = iter(range(10_000))
    return _training(model, lambda model: model(torch.randn(8, 8), next(turns) % 2))


def not_asked_for():
    ranks()
    model = DistributedDataParallel(nn.Linear(8, 4))
    return _training(model, lambda model: model(torch.randn(8, 8)))


def a_layer_whose_parameters_are_frozen():
    ranks()
    inner = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(4, 4))
    inner[0].requires_grad_(requires_grad=False)
    model = DistributedDataParallel(inner, find_unused_parameters=True)
    return _training(model, lambda model: model.module[1](torch.randn(8, 8)))
