"""COMP005 must report exactly the marked lines."""

import torch
from torch import nn

BACKEND = "eager"


def _trained(forward, parameters):
    optimizer = torch.optim.SGD(parameters, lr=0.01)

    def step():
        optimizer.zero_grad()
        forward(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()

    return step


def module_compiled_on_every_step():
    net = nn.Linear(16, 16)

    def forward(x):
        compiled = torch.compile(net, backend=BACKEND)  # COMP005
        return compiled(x)

    return _trained(forward, net.parameters())


def closure_defined_and_compiled_on_every_step():
    net = nn.Linear(16, 16)

    def forward(x):
        scale = 2.0

        @torch.compile(backend=BACKEND)  # COMP005
        def scaled(x):
            return net(x) * scale

        return scaled(x)

    return _trained(forward, net.parameters())


def compiled_on_every_second_step():
    net, taken = nn.Linear(16, 16), [0]

    def forward(x):
        taken[0] += 1
        return torch.compile(net, backend=BACKEND)(x) if taken[0] % 2 else net(x)  # COMP005

    return _trained(forward, net.parameters())
