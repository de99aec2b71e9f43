import time

import torch
from torch import nn

from tests.rules.programs import trained_on_noise

BACKEND = "eager"


def _as_it_is(graph, inputs):
    return graph.forward


def backend_that_changes_little():
    """Some 10 ms a step, of which guards take less than a hundredth."""
    net = nn.Sequential(nn.Linear(16, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 1024))
    return trained_on_noise(torch.compile(net, backend=_as_it_is), net.parameters())


def compiled_code_that_is_faster():
    """Eager code that waits, which the backend leaves out."""

    @torch.compiler.allow_in_graph
    def waiting(x):
        time.sleep(0.003)
        return x

    net = nn.Linear(16, 16)

    def faster(graph, inputs):
        return lambda *args: [net(each).relu() for each in args if each.ndim == 2 and len(each) == 4]

    @torch.compile(backend=faster)
    def forward(x):
        return waiting(net(x)).relu()

    return trained_on_noise(forward, net.parameters())


def held_eager_by_the_program():
    net = nn.Linear(16, 16)
    compiled = torch.compile(net, backend=BACKEND, disable=True)
    return trained_on_noise(compiled, net.parameters())


def no_compiler_at_all():
    net = nn.Linear(16, 16)
    return trained_on_noise(net, net.parameters())
