import torch
from torch import nn

from tests.rules.programs import trained_on_noise

BACKEND = "eager"


def module_compiled_on_every_step():
    net = nn.Linear(16, 16)

    def forward(x):
        compiled = torch.compile(net, backend=BACKEND)  # COMP005
        return compiled(x)

    return trained_on_noise(forward, net.parameters())


def closure_defined_and_compiled_on_every_step():
    net = nn.Linear(16, 16)

    def forward(x):
        scale = 2.0

        @torch.compile(backend=BACKEND)  # COMP005
        def scaled(x):
            return net(x) * scale

        return scaled(x)

    return trained_on_noise(forward, net.parameters())


def compiled_on_every_second_step():
    net, taken = nn.Linear(16, 16), [0]

    def forward(x):
        taken[0] += 1
        return torch.compile(net, backend=BACKEND)(x) if taken[0] % 2 else net(x)  # COMP005

    return trained_on_noise(forward, net.parameters())
