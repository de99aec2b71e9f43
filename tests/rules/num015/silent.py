import torch
from torch import nn

from tests.rules.programs import trained_by


def hole_filled_before_its_use():
    model, rows = nn.Linear(4, 1), torch.tensor([[1.0, float("nan"), 1.0, 1.0]])
    return trained_by(model, lambda: model(torch.nan_to_num(rows)).mean())


def missing_targets_left_out_of_the_loss():
    model, target = nn.Linear(4, 2), torch.tensor([[1.0, float("nan")], [0.0, 1.0]])

    def loss():
        known = ~target.isnan()
        return (model(torch.ones(2, 4))[known] - target[known]).square().mean()

    return trained_by(model, loss)


def nan_only_in_a_metric():
    model, rows = nn.Linear(4, 1), torch.tensor([1.0, float("nan")])

    def loss():
        rows.mean()
        return model(torch.ones(2, 4)).mean()

    return trained_by(model, loss)


def hole_filled_on_the_device__rehearsal():
    model, data = nn.Linear(4, 1).cuda(), torch.ones(2, 4)
    data[1, 2] = float("nan")
    return trained_by(model, lambda: model(torch.nan_to_num(data.cuda())).square().mean())
