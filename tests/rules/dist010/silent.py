"""DIST010 must say nothing about these."""

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from tests.echo_group import ranks


def _model(layers=8, width=8):
    ranks()
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)])
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def gradients_averaged_as_one_vector():
    model, optimizer = _model()

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 8)).square().mean().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        together = parameters_to_vector(gradients)
        dist.all_reduce(together)
        vector_to_parameters(together / 2, gradients)
        optimizer.step()

    return step


def few_gradients():
    model, optimizer = _model(layers=7)

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 8)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()

    return step


def many_at_the_end_of_an_epoch():
    model, optimizer = _model()
    taken = iter(range(100_000))

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()
        if next(taken) % 5 == 0:
            for parameter in model.parameters():
                dist.broadcast(parameter.detach(), 0)

    return step


def large_gradients():
    model, optimizer = _model(width=768)

    def step():
        optimizer.zero_grad()
        model(torch.randn(2, 768)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()

    return step
