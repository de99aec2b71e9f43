"""COMP002 must report exactly the marked lines."""

import torch
from torch import nn

BACKEND = "eager"


def _trained(forward, parameters, batches=None):
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    taken = [0]

    def step():
        x = batches(taken[0]) if batches is not None else torch.randn(4, 16)
        taken[0] += 1
        optimizer.zero_grad()
        forward(x).square().mean().backward()
        optimizer.step()

    return step


def an_attribute_that_counts():
    class _Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.phase = nn.Linear(16, 16), "0"

        def forward(self, x):
            if self.phase == "never":  # COMP002
                x = x * 2
            return torch.relu(self.a(x))

    net = _Net()
    compiled = torch.compile(net, backend=BACKEND)

    def batches(taken):
        net.phase = str(taken % 4)
        return torch.randn(4, 16)

    return _trained(compiled, net.parameters(), batches)


def lengths_that_may_not_vary():
    net = nn.Linear(16, 16)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    compiled, taken = torch.compile(net, backend=BACKEND, dynamic=False), [0]

    def step():
        taken[0] += 1
        optimizer.zero_grad()
        y = compiled(torch.randn(4, 3 + taken[0] % 4, 16))  # COMP002
        y.square().mean().backward()
        optimizer.step()

    return step
