import io

import torch
from torch import nn

from tests.rules.programs import optimized


def module_behind_the_compiled_one():
    net = nn.Linear(4, 1)
    torch.compile(net, backend="eager")
    return lambda: torch.save({"model": net.state_dict()}, "last.pt")


def compiled_in_place():
    net = nn.Linear(4, 1)
    net.compile(backend="eager")
    return lambda: torch.save({"model": net.state_dict()}, "last.pt")


def prefix_that_was_taken_off():
    compiled = torch.compile(nn.Linear(4, 1), backend="eager")

    def step():
        state = {name.partition(".")[2]: each for name, each in compiled.state_dict().items()}
        torch.save({"model": state}, "last.pt")

    return step


def a_name_that_is_only_like_it():
    net = nn.ModuleDict({"my_orig_mod": nn.Linear(4, 1), "orig_mod": nn.Linear(4, 1)})
    return lambda: torch.save({"model": net.state_dict()}, "last.pt")


def _trained(net, saved):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        net(torch.randn(2, 4)).square().mean().backward()
        optimizer.step()
        torch.save(saved(), io.BytesIO())

    return step


def a_run_that_saves_the_module_behind_it():
    net = nn.Linear(4, 1)
    return _trained(torch.compile(net, backend="eager"), lambda: {"model": net.state_dict()})


def a_run_that_takes_the_prefix_off():
    compiled = torch.compile(nn.Linear(4, 1), backend="eager")
    return _trained(compiled, lambda: {name[10:]: each for name, each in compiled.state_dict().items()})


def a_run_that_saves_the_optimizer_alone():
    compiled, optimizer = optimized(torch.compile(nn.Linear(4, 1), backend="eager"), torch.optim.Adam)
    return _trained(compiled, optimizer.state_dict)


def a_run_that_compiles_nothing():
    net = nn.Linear(4, 1)
    return _trained(net, net.state_dict)
