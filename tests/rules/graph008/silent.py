import torch
from torch import nn

from tests.rules.programs import trained_by, trained_with


def _model():
    model = nn.Sequential(nn.Linear(64, 2048), nn.Tanh(), nn.Linear(2048, 8))
    return model, torch.optim.SGD(model.parameters(), lr=1e-4)


def losses_over_one_shared_body():
    model, optimizer = _model()
    heads = nn.ModuleList(nn.Linear(8, 1) for _ in range(4))

    def loss():
        shared = model(torch.randn(256, 64))
        return sum(head(shared).square().mean() for head in heads)

    return trained_with(optimizer, loss)


def several_losses_of_one_output():
    model, optimizer = _model()

    def loss():
        parts = model(torch.randn(256, 64)).split(2, 1)
        return sum(part.square().mean() for part in parts)

    return trained_with(optimizer, loss)


def real_and_made_up_ones():
    model, optimizer = _model()

    def loss():
        real, fake = (model(torch.randn(256, 64)).square().mean() for _ in range(2))
        return real + fake

    return trained_with(optimizer, loss)


def models_of_an_ensemble():
    models = nn.ModuleList(_model()[0] for _ in range(4))

    def loss():
        x = torch.randn(256, 64)
        return sum(model(x).square().mean() for model in models)

    return trained_by(models, loss)


def time_steps_of_one_state():
    cell = nn.GRUCell(64, 512)

    def loss():
        state, total = torch.zeros(128, 512), 0
        for _ in range(4):
            state = cell(torch.randn(128, 64), state)
            total = total + state.square().mean()
        return total

    return trained_by(cell, loss)


def views_that_are_compared_with_each_other():
    model, optimizer = _model()

    def loss():
        views, total = [model(torch.randn(256, 64)) for _ in range(4)], 0
        for one, other in zip(views, views[1:], strict=False):
            total = total + (one - other).square().mean()
        return total

    return trained_with(optimizer, loss)


def small_graphs():
    model = nn.Linear(4, 1)
    return trained_by(model, lambda: sum(model(torch.randn(4)).square().sum() for _ in range(12)))


def losses_of_different_forms():
    model, optimizer = _model()

    def loss():
        one, other, third = (model(torch.randn(256, 64)) for _ in range(3))
        return one.square().mean() + other.abs().mean() + third.logsumexp(1).mean()

    return trained_with(optimizer, loss)


def graphs_that_are_small_beside_the_parameters():
    model = nn.Sequential(nn.Linear(2048, 2048), nn.Tanh(), nn.Linear(2048, 8))
    return trained_by(model, lambda: sum(model(torch.randn(4, 2048)).square().mean() for _ in range(4)))
