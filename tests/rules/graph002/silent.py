import torch
from torch import nn


def two_losses_on_one_graph():
    body, head_a, head_b = nn.Linear(8, 8), nn.Linear(8, 1), nn.Linear(8, 1)

    def step():
        features = body(torch.ones(4, 8)).relu()
        head_a(features).square().mean().backward(retain_graph=True)
        head_b(features).square().mean().backward()

    return step


def gradient_penalty():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))

    def step():
        x = torch.ones(4, 8, requires_grad=True)
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        (grad.norm(dim=1) - 1).square().mean().backward()

    return step


def gradients_looked_at_before_the_real_backward():
    model = nn.Linear(8, 1)

    def step():
        loss = model(torch.ones(4, 8)).square().mean()
        torch.autograd.grad(loss, model.weight, retain_graph=True)
        loss.backward()

    return step


def retained_on_one_step_only():
    model, count = nn.Linear(8, 1), [0]

    def step():
        count[0] += 1
        model(torch.ones(4, 8)).mean().backward(retain_graph=count[0] == 20)

    return step


def gradients_whose_graph_waits_for_a_later_step():
    model, kept = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)), []

    def step():
        x = torch.ones(4, 8, requires_grad=True)
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        kept.append(grad.norm())
        if len(kept) == 500:
            torch.stack(kept).sum().backward()
            kept.clear()

    return step


def a_gradient_that_has_no_graph():
    model = nn.Linear(8, 1)

    def step():
        x = torch.ones(4, 8, requires_grad=True)
        torch.autograd.grad(x.sum(), x, create_graph=True)
        model(x).mean().backward()

    return step
