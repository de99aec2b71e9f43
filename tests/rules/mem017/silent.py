"""Near misses: MEM017 must stay silent on all of these."""

import torch
from torch import nn


def _parts():
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    return net, torch.optim.SGD(net.parameters(), lr=1e-3)


def _train(net, optimizer):
    optimizer.zero_grad()
    net(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()


def removed_by_its_handle():
    net, optimizer = _parts()

    def step():
        handle = net[1].register_forward_hook(lambda module, inputs, output: None)
        _train(net, optimizer)
        handle.remove()

    return step


def removed_by_a_with():
    net, optimizer = _parts()

    def step():
        with net[1].register_forward_hook(lambda module, inputs, output: None):
            _train(net, optimizer)

    return step


def the_hook_of_the_step_before_is_replaced():
    net, optimizer = _parts()
    kept = []

    def step():
        while kept:
            kept.pop().remove()
        kept.append(net[1].register_forward_hook(lambda module, inputs, output: None))
        _train(net, optimizer)

    return step


def on_a_tensor_that_lives_for_one_step():
    net, optimizer = _parts()

    def step():
        optimizer.zero_grad()
        hidden = net[1](net[0](torch.ones(4, 8)))
        hidden.register_hook(lambda grad: grad.clamp(-1, 1))
        net[2](hidden).square().mean().backward()
        optimizer.step()

    return step


def on_a_module_that_is_made_on_each_step():
    net, optimizer = _parts()

    def step():
        probe = nn.Identity()
        probe.register_forward_hook(lambda module, inputs, output: None)
        probe(torch.ones(1))
        _train(net, optimizer)

    return step


def registered_before_the_steps():
    net, optimizer = _parts()
    net[1].register_forward_hook(lambda module, inputs, output: None)

    def step():
        _train(net, optimizer)

    return step


def registered_on_the_first_step_alone():
    net, optimizer = _parts()
    seen = []

    def step():
        if not seen:
            seen.append(net[1].register_forward_hook(lambda module, inputs, output: None))
        _train(net, optimizer)

    return step


def all_are_removed_every_third_step():
    net, optimizer = _parts()
    kept = []

    def step():
        kept.append(net[1].register_forward_hook(lambda module, inputs, output: None))
        _train(net, optimizer)
        if len(kept) == 3:
            while kept:
                kept.pop().remove()

    return step
