import torch
from torch import nn


def _model():
    model = nn.Sequential(nn.Linear(64, 2048), nn.Tanh(), nn.Linear(2048, 8))
    return model, torch.optim.SGD(model.parameters(), lr=1e-4)


def backward_in_each_turn():
    model, optimizer = _model()

    def step():
        optimizer.zero_grad()
        for _ in range(4):
            (model(torch.randn(256, 64)).square().mean() / 4).backward()
        optimizer.step()

    return step


def losses_over_one_shared_body():
    model, optimizer = _model()
    heads = nn.ModuleList(nn.Linear(8, 1) for _ in range(4))

    def step():
        optimizer.zero_grad()
        shared = model(torch.randn(256, 64))
        sum(head(shared).square().mean() for head in heads).backward()
        optimizer.step()

    return step


def several_losses_of_one_output():
    model, optimizer = _model()

    def step():
        optimizer.zero_grad()
        parts = model(torch.randn(256, 64)).split(2, 1)
        sum(part.square().mean() for part in parts).backward()
        optimizer.step()

    return step


def real_and_made_up_ones():
    model, optimizer = _model()

    def step():
        optimizer.zero_grad()
        real, fake = (model(torch.randn(256, 64)).square().mean() for _ in range(2))
        (real + fake).backward()
        optimizer.step()

    return step


def models_of_an_ensemble():
    models = nn.ModuleList(_model()[0] for _ in range(4))
    optimizer = torch.optim.SGD(models.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        x = torch.randn(256, 64)
        sum(model(x).square().mean() for model in models).backward()
        optimizer.step()

    return step


def time_steps_of_one_state():
    cell = nn.GRUCell(64, 512)
    optimizer = torch.optim.SGD(cell.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        state, total = torch.zeros(128, 512), 0
        for _ in range(4):
            state = cell(torch.randn(128, 64), state)
            total = total + state.square().mean()
        total.backward()
        optimizer.step()

    return step


def views_that_are_compared_with_each_other():
    model, optimizer = _model()

    def step():
        optimizer.zero_grad()
        views, total = [model(torch.randn(256, 64)) for _ in range(4)], 0
        for one, other in zip(views, views[1:], strict=False):
            total = total + (one - other).square().mean()
        total.backward()
        optimizer.step()

    return step


def small_graphs():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        sum(model(torch.randn(4)).square().sum() for _ in range(12)).backward()
        optimizer.step()

    return step


def losses_of_different_forms():
    model, optimizer = _model()

    def step():
        optimizer.zero_grad()
        one, other, third = (model(torch.randn(256, 64)) for _ in range(3))
        (one.square().mean() + other.abs().mean() + third.logsumexp(1).mean()).backward()
        optimizer.step()

    return step


def graphs_that_are_small_beside_the_parameters():
    model = nn.Sequential(nn.Linear(2048, 2048), nn.Tanh(), nn.Linear(2048, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        sum(model(torch.randn(4, 2048)).square().mean() for _ in range(4)).backward()
        optimizer.step()

    return step
