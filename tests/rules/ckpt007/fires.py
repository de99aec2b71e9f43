import torch
from torch import nn


def _trained(loss_of, optimizer_of=torch.optim.AdamW):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer, count = optimizer_of(model.parameters(), lr=1e-3), [0]

    def step():
        count[0] += 1
        optimizer.zero_grad()
        loss_of(model, count[0]).backward()
        optimizer.step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")

    return step


def branch_multiplied_by_zero():
    return _trained(lambda model, n: (model[2](model[0](torch.ones(2, 4))) + 0.0 * model[1](torch.ones(2, 4))).mean())


def dead_units_under_rmsprop():
    def loss(model, n):
        hidden = torch.relu(model[0](torch.ones(2, 4)) - 100)
        return model[2](hidden + model[1](torch.ones(2, 4))).mean()

    return _trained(loss, torch.optim.RMSprop)


def one_gradient_out_of_all_proportion():
    def loss(model, n):
        scale = 1e9 if n == 3 else 1.0
        return model(torch.ones(2, 4)).mean() + scale * model[0].weight.sum()

    return _trained(loss)
