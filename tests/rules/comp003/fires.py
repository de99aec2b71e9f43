import torch
from torch import nn

from tests.rules.programs import trained_by, trained_on_noise

BACKEND = "eager"


def a_text_that_is_new_on_each_step():
    net, state = nn.Linear(16, 16), {"tag": ""}

    @torch.compile(backend=BACKEND)
    def forward(x):
        return net(x) * (2.0 if state["tag"] == "end" else 1.0)  # COMP003

    def batches(taken):
        state["tag"] = str(taken)
        return torch.randn(4, 16)

    return trained_on_noise(forward, net.parameters(), batches)


def lengths_without_end():
    net = nn.Linear(16, 16)
    compiled, taken = torch.compile(net, backend=BACKEND, dynamic=False), [0]

    def loss():
        taken[0] += 1
        y = compiled(torch.randn(4, 3 + taken[0], 16))  # COMP003
        return y.square().mean()

    return trained_by(net, loss)
