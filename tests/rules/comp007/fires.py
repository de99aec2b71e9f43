"""COMP007 must report exactly the marked lines."""

import torch
from torch import nn


def _trained(forward, net, batches):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        forward(*batches()).square().mean().backward()
        optimizer.step()

    return step


def an_input_that_is_written_to__cuda():
    net = nn.Linear(16, 16).cuda()
    seen = torch.zeros(4, 16, device="cuda")

    @torch.compile(mode="reduce-overhead")  # COMP007
    def forward(x, seen):
        seen.add_(x)
        return net(x) + seen

    return _trained(forward, net, lambda: (torch.randn(4, 16, device="cuda"), seen))
