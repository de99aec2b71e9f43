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
