"""GRAPH002 must report exactly the marked lines."""

import torch
from torch import nn


def retained_in_gradient_accumulation():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        for _ in range(4):
            loss = model(torch.ones(4, 8)).square().mean() / 4
            loss.backward(retain_graph=True)  # GRAPH002
        optimizer.step()

    return step


def retained_by_habit():
    model = nn.Linear(8, 1)

    def step():
        model(torch.ones(4, 8)).mean().backward(retain_graph=True)  # GRAPH002

    return step


def retained_by_the_function_form():
    model = nn.Linear(8, 1)

    def step():
        loss = model(torch.ones(4, 8)).mean()
        torch.autograd.backward(loss, retain_graph=True)  # GRAPH002

    return step
