import torch
from torch import nn

from tests.rules.programs import numbered, trained_on_noise

BACKEND = "eager"


def eight_lengths():
    net = nn.Linear(16, 16)
    compiled = torch.compile(net, backend=BACKEND, dynamic=False)

    def step(number):
        compiled(torch.randn(4, 3 + number % 8, 16)).square().mean().backward()  # COMP002

    return numbered(step)


def lengths_that_may_vary():
    net = nn.Linear(16, 16)
    compiled = torch.compile(net, backend=BACKEND, dynamic=True)
    return trained_on_noise(compiled, net.parameters(), lambda taken: torch.randn(4, 3 + taken, 16))


def many_functions():
    nets = [nn.Linear(16, 16) for _ in range(10)]
    compiled = [torch.compile(net, backend=BACKEND) for net in nets]

    def forward(x):
        for each in compiled:
            x = each(x)
        return x

    return trained_on_noise(forward, [p for net in nets for p in net.parameters()])
