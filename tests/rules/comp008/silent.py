"""COMP008 must stay silent here."""

import torch
from torch import nn

BACKEND = "eager"


def _trained(forward, parameters, each=lambda: None):
    optimizer = torch.optim.SGD(parameters, lr=0.01)

    def step():
        each()
        optimizer.zero_grad()
        forward(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()

    return step


def _net():
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))


def hook_before_the_first_call():
    net, seen = _net(), []
    compiled = torch.compile(net, backend=BACKEND)
    net[0].register_forward_hook(lambda module, inputs, output: seen.append(1))
    return _trained(compiled, net.parameters(), seen.clear)


def hook_of_the_compiled_module_itself():
    net, seen = _net(), []
    compiled = torch.compile(net, backend=BACKEND)
    compiled(torch.randn(4, 16)).sum().backward()
    compiled.register_forward_hook(lambda module, inputs, output: seen.append(1))
    return _trained(compiled, net.parameters(), seen.clear)


def hook_of_a_layer_that_is_not_compiled():
    net, head, seen = _net(), nn.Linear(16, 16), []
    compiled = torch.compile(net, backend=BACKEND)
    compiled(torch.randn(4, 16)).sum().backward()
    head.register_forward_hook(lambda module, inputs, output: seen.append(1))
    return _trained(lambda x: head(compiled(x)), [*net.parameters(), *head.parameters()], seen.clear)


def hook_of_a_layer_that_nobody_calls():
    net, seen = nn.ModuleDict({"used": nn.Linear(16, 16), "other": nn.Linear(16, 16)}), []
    compiled = torch.compile(net["used"], backend=BACKEND)
    compiled(torch.randn(4, 16)).sum().backward()
    net["other"].register_forward_hook(lambda module, inputs, output: seen.append(1))
    return _trained(compiled, net["used"].parameters(), seen.clear)


def compiled_anew_after_the_hook():
    net, seen = _net(), []
    compiled = torch.compile(net, backend=BACKEND)
    compiled(torch.randn(4, 16)).sum().backward()
    net[0].register_forward_hook(lambda module, inputs, output: seen.append(1))
    torch.compiler.reset()
    return _trained(compiled, net.parameters(), seen.clear)


def hook_that_is_removed_again():
    net, seen = _net(), []
    compiled = torch.compile(net, backend=BACKEND)
    compiled(torch.randn(4, 16)).sum().backward()
    net[0].register_forward_hook(lambda module, inputs, output: seen.append(1)).remove()
    return _trained(compiled, net.parameters(), seen.clear)


def nothing_is_compiled():
    net, seen = _net(), []
    net(torch.randn(4, 16)).sum().backward()
    net[0].register_forward_hook(lambda module, inputs, output: seen.append(1))
    return _trained(net, net.parameters(), seen.clear)


def second_hook_of_a_layer():
    net, seen = _net(), []
    compiled = torch.compile(net, backend=BACKEND)
    net[0].register_forward_hook(lambda module, inputs, output: None)
    compiled(torch.randn(4, 16)).sum().backward()
    net[0].register_forward_hook(lambda module, inputs, output: seen.append(1))
    return _trained(compiled, net.parameters(), seen.clear)
