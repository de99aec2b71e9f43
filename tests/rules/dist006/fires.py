"""DIST006 must name the marked lines."""

import torch
from torch.nn.parallel import DistributedDataParallel

from tests.echo_group import ranks


def asked_for_and_not_needed():
    ranks()
    inner = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    model = DistributedDataParallel(inner, find_unused_parameters=True)  # DIST006
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()

    return step


def asked_for_on_several_lines():
    ranks()
    model = DistributedDataParallel(  # DIST006
        torch.nn.Linear(8, 4),
        find_unused_parameters=True,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad(set_to_none=False)
        model(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()

    return step
