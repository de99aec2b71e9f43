"""COMP006 must report exactly the marked lines."""

import time

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


def _slow(graph, inputs):
    def run(*args):
        time.sleep(0.004)
        return graph.forward(*args)

    return run


def backend_that_makes_slow_code():
    net = nn.Linear(16, 16)
    compiled = torch.compile(net, backend=_slow)  # COMP006
    return _trained(compiled, net.parameters())


def several_layers_of_one_line():
    layers = [nn.Linear(16, 16) for _ in range(3)]
    compiled = [torch.compile(layer, backend=_slow) for layer in layers]  # COMP006

    def forward(x):
        for each in compiled:
            x = each(x)
        return x

    return _trained(forward, [p for layer in layers for p in layer.parameters()])


def function_with_a_decorator():
    net = nn.Linear(16, 16)

    @torch.compile(backend=_slow)  # COMP006
    def forward(x):
        return net(x).relu()

    return _trained(forward, net.parameters())
