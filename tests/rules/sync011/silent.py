import numpy
import torch
from torch import nn


def filled_on_the_device__rehearsal():
    model, x = nn.Linear(8, 2, device="cuda"), torch.ones(4, 8, device="cuda")
    return lambda: (model(x) * torch.full((), 0.5, device="cuda")).mean().backward()


def a_python_number_in_an_expression__rehearsal():
    model, x = nn.Linear(8, 2, device="cuda"), torch.ones(4, 8, device="cuda")
    return lambda: (model(x) * 0.5 + 1.0).mean().backward()


def a_constant_of_the_host__rehearsal():
    model, x = nn.Linear(8, 2, device="cuda"), torch.ones(4, 8, device="cuda")

    def step():
        scale = torch.tensor(0.5)  # a number of the host that a kernel takes as its argument
        (model(x) * scale).mean().backward()

    return step


def an_array_that_becomes_a_tensor_there__rehearsal():
    rows = numpy.random.default_rng(0).normal(size=(64, 8))

    def step():
        return torch.as_tensor(rows[:16], dtype=torch.float32).to("cuda").sum()  # data, not numbers: SYNC006 speaks of it

    return step
