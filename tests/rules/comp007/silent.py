"""COMP007 must stay silent here."""

import torch
from torch import nn


def _trained(forward, net, batches):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        forward(*batches()).square().mean().backward()
        optimizer.step()

    return step


def _batch():
    return (torch.randn(4, 16, device="cuda"),)


def graphs_that_are_used__cuda():
    net = nn.Linear(16, 16).cuda()
    return _trained(torch.compile(net, mode="reduce-overhead"), net, _batch)


def a_buffer_that_is_written_to__cuda():
    net = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)).cuda()
    return _trained(torch.compile(net, mode="reduce-overhead"), net, _batch)


def nobody_asks_for_graphs__cuda():
    net = nn.Linear(16, 16).cuda()
    seen = torch.zeros(4, 16, device="cuda")

    @torch.compile
    def forward(x, seen):
        seen.add_(x)
        return net(x) + seen

    return _trained(forward, net, lambda: (*_batch(), seen))


def asked_for_on_a_cpu():
    net = nn.Linear(16, 16)
    compiled = torch.compile(net, backend="eager")
    return _trained(compiled, net, lambda: (torch.randn(4, 16),))
