"""DIST010 must name the marked lines."""

import torch
import torch.distributed as dist

from tests.echo_group import ranks


def gradients_averaged_one_by_one():
    ranks()
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(8)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 8)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)  # DIST010
            parameter.grad /= 2
        optimizer.step()

    return step


def buffers_broadcast_one_by_one():
    ranks()
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)  # DIST010
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()

    return step
