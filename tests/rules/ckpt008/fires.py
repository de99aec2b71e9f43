import io

import torch
from torch import nn


def layers_that_were_compiled_one_by_one():
    net = nn.Sequential(*(torch.compile(nn.Linear(4, 4), backend="eager") for _ in range(2)))
    return lambda: torch.save(net.state_dict(), "last.pt")


def compiled_and_then_wrapped():
    compiled = torch.compile(nn.Linear(4, 1), backend="eager")
    wrapped = nn.ModuleDict({"module": compiled})
    return lambda: torch.save({"state_dict": wrapped.state_dict()}, "last.pt")


def _trained(net, saved):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        net(torch.randn(2, 4)).square().mean().backward()
        optimizer.step()
        saved()

    return step


def saved_in_a_run():
    compiled = torch.compile(nn.Linear(4, 1), backend="eager")
    return _trained(compiled, lambda: torch.save(compiled.state_dict(), io.BytesIO()))  # CKPT008


def saved_in_a_run_among_other_things():
    net = nn.Sequential(torch.compile(nn.Linear(4, 4), backend="eager"), nn.Linear(4, 1))
    count = [0]

    def save():
        count[0] += 1
        if count[0] % 4 == 0:
            parts = {"epoch": 1, "parts": {"model": net.state_dict()}}
            torch.save(parts, io.BytesIO())  # CKPT008

    return _trained(net, save)
