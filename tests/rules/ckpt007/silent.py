import torch
from torch import nn


def _trained(loss_of, optimizer_of=torch.optim.AdamW, saves_at=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer, count = optimizer_of(model.parameters(), lr=1e-3), [0]

    def step():
        count[0] += 1
        optimizer.zero_grad()
        loss_of(model, count[0]).backward()
        optimizer.step()
        if saves_at in (None, count[0]):
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")

    return step


def frozen_layer_has_no_moments():
    def loss(model, n):
        model[0].requires_grad_(False)
        return model(torch.ones(2, 4)).mean()

    return _trained(loss)


def branch_that_is_not_used_at_all():
    return _trained(lambda model, n: model[2](model[0](torch.ones(2, 4))).mean())


def zero_initialised_and_only_just_begun():
    return _trained(lambda model, n: (0.0 * model[1](torch.ones(2, 4)) + model[0](torch.ones(2, 4))).mean(), saves_at=3)


def gradients_that_differ_ten_thousandfold():
    return _trained(lambda model, n: model(torch.ones(2, 4)).mean() + 1e4 * model[0].weight.sum())


def plain_sgd_keeps_no_moments():
    return _trained(lambda model, n: model(torch.ones(2, 4)).mean(), torch.optim.SGD)
