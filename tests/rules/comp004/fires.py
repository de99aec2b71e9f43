import torch
from torch import nn

from tests.rules.programs import trained_on_noise

BACKEND = "eager"


def result_that_is_dropped():
    net = nn.Linear(16, 16)
    torch.compile(net, backend=BACKEND)  # COMP004
    return trained_on_noise(net, net.parameters())


def result_that_is_dropped_beside_one_that_runs():
    encoder, head = nn.Linear(16, 16), nn.Linear(16, 16)
    torch.compile(encoder, backend=BACKEND)  # COMP004
    compiled = torch.compile(head, backend=BACKEND)
    parameters = [*encoder.parameters(), *head.parameters()]
    return trained_on_noise(lambda x: compiled(encoder(x)), parameters)


def name_that_is_set_after_the_trainer_took_the_module():
    net = nn.Linear(16, 16)
    step = trained_on_noise(net, net.parameters())
    net = torch.compile(net, backend=BACKEND)  # COMP004
    step.net = net
    return step


def second_name_that_nobody_reads():
    net = nn.Linear(16, 16)
    faster = torch.compile(net, backend=BACKEND)  # COMP004
    step = trained_on_noise(net, net.parameters())
    step.locals = locals()
    return step


def forward_called_past_the_compiler():
    net = nn.Linear(16, 16)
    net.compile(backend=BACKEND)  # COMP004
    return trained_on_noise(net.forward, net.parameters())


def function_whose_compiled_form_is_dropped():
    net = nn.Linear(16, 16)

    def forward(x):
        return net(x).relu()

    torch.compile(forward, backend=BACKEND)  # COMP004
    return trained_on_noise(forward, net.parameters())
