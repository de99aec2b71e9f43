"""COMP008 must report exactly the marked lines."""

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


def hook_of_a_layer_after_the_first_call():
    net, seen = _net(), []
    compiled = torch.compile(net, backend=BACKEND)
    compiled(torch.randn(4, 16)).sum().backward()
    net[0].register_forward_hook(lambda module, inputs, output: seen.append(1))  # COMP008
    return _trained(compiled, net.parameters(), seen.clear)


def hooks_of_all_layers_after_the_warm_up():
    class _Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x):
            return self.last(self.first(x).relu())

    net, taken, norms = _Model(), [0], {}
    net.compile(backend=BACKEND)

    def _keep(name):
        def hook(module, grads, given):
            norms[name] = given[0].norm()

        return hook

    def later():
        taken[0] += 1
        if taken[0] == 4:
            for name, layer in net.named_children():
                layer.register_full_backward_hook(_keep(name))  # COMP008

    return _trained(net, net.parameters(), later)
