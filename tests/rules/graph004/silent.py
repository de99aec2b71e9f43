import torch
from torch import nn

from tests.rules.programs import optimized, trained_by


def _model():
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))


def gradients_filled_with_zeros_which_detaches_them():
    model, optimizer = optimized(_model())

    def step():
        optimizer.zero_grad(set_to_none=False)
        model(torch.ones(4, 8)).square().mean().backward(create_graph=True)
        optimizer.step()

    return step


def gradient_penalty_by_autograd_grad():
    model = _model()

    def loss():
        x = torch.ones(4, 8, requires_grad=True)
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return out.mean() + slope.square().sum()

    return trained_by(model, loss)


def fast_model_dropped_after_its_gradients():
    def step():
        fast = _model()
        fast(torch.ones(4, 8)).square().mean().backward(create_graph=True)
        fast.zero_grad()

    return step


def gradients_detached_in_place():
    model = _model()

    def step():
        model(torch.ones(4, 8)).square().mean().backward(create_graph=True)
        for parameter in model.parameters():
            parameter.grad.detach_()

    return step
