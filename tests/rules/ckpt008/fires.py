"""CKPT008 must be reported once for each of these (a checkpoint has no line)."""

import torch
from torch import nn


def state_of_a_compiled_module():
    compiled = torch.compile(nn.Linear(4, 1), backend="eager")

    def step():
        torch.save({"model": compiled.state_dict(), "epoch": 1}, "last.pt")

    return step


def layers_that_were_compiled_one_by_one():
    net = nn.Sequential(*(torch.compile(nn.Linear(4, 4), backend="eager") for _ in range(2)))

    def step():
        torch.save(net.state_dict(), "last.pt")

    return step


def compiled_and_then_wrapped():
    compiled = torch.compile(nn.Linear(4, 1), backend="eager")
    wrapped = nn.ModuleDict({"module": compiled})

    def step():
        torch.save({"state_dict": wrapped.state_dict()}, "last.pt")

    return step
