import torch
from torch import nn

from tests.rules.programs import trained_by, trained_on_noise

BACKEND = "eager"


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

    return trained_on_noise(compiled, net.parameters(), batches)


def lengths_that_may_not_vary():
    net = nn.Linear(16, 16)
    compiled, taken = torch.compile(net, backend=BACKEND, dynamic=False), [0]

    def loss():
        taken[0] += 1
        y = compiled(torch.randn(4, 3 + taken[0] % 4, 16))  # COMP002
        return y.square().mean()

    return trained_by(net, loss)
