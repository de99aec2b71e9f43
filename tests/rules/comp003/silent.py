"""COMP003 must stay silent here."""

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


def compiled_once():
    net = nn.Linear(16, 16)
    return _trained(torch.compile(net, backend=BACKEND), net.parameters())


def eight_lengths():
    net = nn.Linear(16, 16)
    compiled = torch.compile(net, backend=BACKEND, dynamic=False)
    taken = [0]

    def step():
        taken[0] += 1
        compiled(torch.randn(4, 3 + taken[0] % 8, 16)).square().mean().backward()  # COMP002

    return step


def lengths_that_may_vary():
    net = nn.Linear(16, 16)
    compiled = torch.compile(net, backend=BACKEND, dynamic=True)
    return _trained(compiled, net.parameters(), lambda taken: torch.randn(4, 3 + taken, 16))


def many_functions():
    nets = [nn.Linear(16, 16) for _ in range(10)]
    compiled = [torch.compile(net, backend=BACKEND) for net in nets]

    def forward(x):
        for each in compiled:
            x = each(x)
        return x

    return _trained(forward, [p for net in nets for p in net.parameters()])
