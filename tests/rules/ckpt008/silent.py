"""Near misses: CKPT008 must stay silent on all of these."""

import torch
from torch import nn


def module_behind_the_compiled_one():
    net = nn.Linear(4, 1)
    torch.compile(net, backend="eager")

    def step():
        torch.save({"model": net.state_dict()}, "last.pt")

    return step


def compiled_in_place():
    net = nn.Linear(4, 1)
    net.compile(backend="eager")

    def step():
        torch.save({"model": net.state_dict()}, "last.pt")

    return step


def prefix_that_was_taken_off():
    compiled = torch.compile(nn.Linear(4, 1), backend="eager")

    def step():
        state = {name.removeprefix("_orig_mod."): each for name, each in compiled.state_dict().items()}
        torch.save({"model": state}, "last.pt")

    return step


def a_name_that_is_only_like_it():
    net = nn.ModuleDict({"my_orig_mod": nn.Linear(4, 1), "orig_mod": nn.Linear(4, 1)})

    def step():
        torch.save({"model": net.state_dict()}, "last.pt")

    return step
