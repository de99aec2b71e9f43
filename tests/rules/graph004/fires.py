import torch
from torch import nn


def gradient_penalty_by_backward_and_never_reset():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))

    def step():
        model(torch.ones(4, 8)).square().mean().backward(create_graph=True)  # GRAPH004
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(1e-3 * parameter.grad)

    return step


def fast_model_dropped_with_its_gradients():
    def step():
        fast = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
        fast(torch.ones(4, 8)).square().mean().backward(create_graph=True)  # GRAPH004

    return step


def added_up_over_five_steps_with_their_graphs():
    model, count = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)), [0]

    def step():
        count[0] += 1
        torch.autograd.backward(model(torch.ones(4, 8)).square().mean(), create_graph=True)  # GRAPH004
        if count[0] % 5 == 0:
            model.zero_grad()

    return step
