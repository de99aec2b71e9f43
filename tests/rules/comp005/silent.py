import torch
from torch import nn

from tests.rules.programs import trained_on_noise

BACKEND = "eager"


def compiled_before_the_loop():
    net = nn.Linear(16, 16)
    return trained_on_noise(torch.compile(net, backend=BACKEND), net.parameters())


def compiled_on_first_use():
    net, kept = nn.Linear(16, 16), []

    def forward(x):
        if not kept:
            kept.append(torch.compile(net, backend=BACKEND))
        return kept[0](x)

    return trained_on_noise(forward, net.parameters())


def one_for_each_of_two_stages():
    net, kept, taken = nn.Linear(16, 16), {}, [0]

    def forward(x):
        taken[0] += 1
        stage = "warm" if taken[0] < 4 else "main"
        if stage not in kept:
            kept[stage] = torch.compile(net, backend=BACKEND)
        return kept[stage](x)

    return trained_on_noise(forward, net.parameters())


def decorator_at_the_head_of_the_program():
    net = nn.Linear(16, 16)

    @torch.compile(backend=BACKEND)
    def forward(x):
        return net(x).relu()

    return trained_on_noise(forward, net.parameters())
