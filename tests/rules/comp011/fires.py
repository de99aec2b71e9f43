"""COMP011 must report exactly the marked lines."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.echo_group import ranks

BACKEND = "aot_eager"


class _Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(128, 128) for _ in range(6)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def _trained(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        model(torch.randn(4, 128)).square().mean().backward()
        optimizer.step()

    return step


def tried_before_it_is_wrapped():
    ranks()
    compiled = torch.compile(_Net(), backend=BACKEND)
    compiled(torch.randn(4, 128)).sum()
    return _trained(DistributedDataParallel(compiled, bucket_cap_mb=0.1))  # COMP011


def compiled_in_place_and_tried():
    ranks()
    net = _Net()
    net.compile(backend=BACKEND)
    net(torch.randn(4, 128)).sum().backward()
    net.zero_grad()
    model = DistributedDataParallel(  # COMP011
        net,
        bucket_cap_mb=0.1,
    )
    return _trained(model)
