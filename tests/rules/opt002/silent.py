import torch
from torch import nn

from tests.rules.programs import optimized


def none_asked_for():
    model, optimizer = optimized(nn.Linear(8, 1), lr=0.01)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(torch.ones(4, 8)).mean().backward()
        optimizer.step()

    return step


def gradients_set_to_none_by_hand():
    model = nn.Linear(8, 1)

    def step():
        for p in model.parameters():
            p.grad = None
        model(torch.ones(4, 8)).mean().backward()

    return step


def zeros_every_fiftieth_step_only():
    model, count = nn.Linear(8, 1), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        count[0] += 1
        optimizer.zero_grad(set_to_none=count[0] % 50 != 0)
        model(torch.ones(4, 8)).mean().backward()
        optimizer.step()

    return step


def a_part_held_still_by_zeros():
    model, optimizer = optimized(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)), lr=0.01)

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 8)).mean().backward()
        for p in model[0].parameters():
            p.grad.zero_()
        optimizer.step()

    return step


def one_row_of_a_gradient_and_a_buffer():
    model, total = nn.Linear(8, 2), torch.zeros(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        total.zero_()
        for _ in range(2):
            model(torch.ones(4, 8)).mean().backward()
            model.weight.grad[0].zero_()
        optimizer.step()
        optimizer.zero_grad()

    return step
