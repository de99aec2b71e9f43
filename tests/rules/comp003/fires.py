"""COMP003 must report exactly the marked lines."""

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


def a_text_that_is_new_on_each_step():
    net, state = nn.Linear(16, 16), {"tag": ""}

    @torch.compile(backend=BACKEND)
    def forward(x):
        return net(x) * (2.0 if state["tag"] == "end" else 1.0)  # COMP003

    def batches(taken):
        state["tag"] = str(taken)
        return torch.randn(4, 16)

    return _trained(forward, net.parameters(), batches)


def lengths_without_end():
    net = nn.Linear(16, 16)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    compiled, taken = torch.compile(net, backend=BACKEND, dynamic=False), [0]

    def step():
        taken[0] += 1
        optimizer.zero_grad()
        y = compiled(torch.randn(4, 3 + taken[0], 16))  # COMP003
        y.square().mean().backward()
        optimizer.step()

    return step
