"""MEM017 must report exactly the marked lines."""

import torch
from torch import nn


def _parts():
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    return net, torch.optim.SGD(net.parameters(), lr=1e-3)


def _train(net, optimizer):
    optimizer.zero_grad()
    net(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()


def a_forward_hook_on_each_step():
    net, optimizer = _parts()
    features = []

    def step():
        net[1].register_forward_hook(lambda m, i, o: features.append(o.mean().item()))  # MEM017
        _train(net, optimizer)
        features.clear()

    return step


def hooks_on_each_layer_from_a_loop():
    net, optimizer = _parts()
    norms = {}

    def step():
        for name, layer in net.named_children():

            def keep(module, inputs, output, name=name):
                norms[name] = float(output.detach().norm())

            layer.register_forward_hook(keep)  # MEM017
        _train(net, optimizer)

    return step


def a_hook_on_a_parameters_gradient():
    net, optimizer = _parts()

    def step():
        net[0].weight.register_hook(lambda grad: grad * 1.0)  # MEM017
        _train(net, optimizer)

    return step


def of_two_hooks_one_is_removed():
    net, optimizer = _parts()

    def step():
        kept = net[0].register_forward_pre_hook(lambda module, inputs: None)
        net[2].register_full_backward_hook(lambda module, before, after: None)  # MEM017
        _train(net, optimizer)
        kept.remove()

    return step


def behind_each_optimizers_step():
    net, optimizer = _parts()

    def step():
        optimizer.register_step_post_hook(lambda optimizer, args, kwargs: None)  # MEM017
        _train(net, optimizer)

    return step
