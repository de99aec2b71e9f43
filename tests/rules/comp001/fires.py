import contextlib

import torch
from torch import nn

from tests.rules.programs import trained_on_noise

BACKEND = "eager"


def prints_in_forward():
    class _Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 4)

        def forward(self, x):
            h = torch.relu(self.a(x))
            print(end="")  # COMP001
            return self.b(h)

    net = _Net()
    return trained_on_noise(torch.compile(net, backend=BACKEND), net.parameters())


def reads_a_value():
    net = nn.Linear(16, 16)

    @torch.compile(backend=BACKEND)
    def forward(x):
        h = net(x)
        scale = h.detach().abs().max().item()  # COMP001
        return h / (1 + scale)

    return trained_on_noise(forward, net.parameters())


def branches_on_a_tensor_in_a_compiled_layer():
    class _Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(16, 16)

        def forward(self, x):
            h = self.a(x)
            if h.sum() > 0:  # COMP001
                h = h * 0.5
            return torch.relu(h)

    layer, head = _Layer(), nn.Linear(16, 1)
    layer.compile(backend=BACKEND)
    return trained_on_noise(lambda x: head(layer(x)), [*layer.parameters(), *head.parameters()])


def in_a_helper_that_the_region_calls():
    net = nn.Linear(16, 16)

    def helper(h):
        rows = h.detach().norm(dim=1).tolist()  # COMP001
        return h * len(rows)

    @torch.compile(backend=BACKEND)
    def forward(x):
        return helper(net(x)) + 1

    return trained_on_noise(forward, net.parameters())


def prints_where_no_graph_can_end():
    net = nn.Linear(16, 16)

    @torch.compile(backend=BACKEND)
    def forward(x):
        for _ in range(2):
            x = net(x)
            print(end="")  # COMP001
        return x

    return trained_on_noise(forward, net.parameters())


def enters_autocast_by_a_stack():
    net = nn.Linear(16, 16)

    @torch.compile(backend=BACKEND)
    def forward(x):
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))  # COMP001
            return net(x).float()

    return trained_on_noise(forward, net.parameters())
