import time

import torch
from torch import nn

from tests.rules.programs import trained_on_noise

BACKEND = "eager"


def _slow(graph, inputs):
    def run(*args):
        time.sleep(0.004)
        return graph.forward(*args)

    return run


def backend_that_makes_slow_code():
    net = nn.Linear(16, 16)
    compiled = torch.compile(net, backend=_slow)  # COMP006
    return trained_on_noise(compiled, net.parameters())


def several_layers_of_one_line():
    layers = [nn.Linear(16, 16) for _ in range(3)]
    compiled = [torch.compile(layer, backend=_slow) for layer in layers]  # COMP006

    def forward(x):
        for each in compiled:
            x = each(x)
        return x

    return trained_on_noise(forward, [p for layer in layers for p in layer.parameters()])


def function_with_a_decorator():
    net = nn.Linear(16, 16)

    @torch.compile(backend=_slow)  # COMP006
    def forward(x):
        return net(x).relu()

    return trained_on_noise(forward, net.parameters())
