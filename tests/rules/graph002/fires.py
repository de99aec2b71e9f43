import torch
from torch import nn

from tests.rules.programs import optimized


def retained_in_gradient_accumulation():
    model, optimizer = optimized(nn.Linear(8, 1), lr=0.01)

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


def a_graph_of_gradients_that_are_only_logged():
    model, seen = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)), []

    def step():
        x = torch.ones(4, 8, requires_grad=True)
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)  # GRAPH002
        seen.append(grad.norm().item())
        model(x).mean().backward()

    return step
