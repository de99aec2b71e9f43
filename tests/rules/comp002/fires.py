import torch
from torch import nn

from tests.rules.programs import trained_on_noise

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
