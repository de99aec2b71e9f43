import torch
from torch import nn

from tests.rules.programs import trained_with


def _trained(model, loss_of):
    return trained_with(torch.optim.SGD(model.parameters(), lr=0.1), lambda: loss_of())


def hole_filled_before_its_use():
    model, rows = nn.Linear(4, 1), torch.tensor([[1.0, float("nan"), 1.0, 1.0]])
    return _trained(model, lambda: model(torch.nan_to_num(rows)).mean())


def missing_targets_left_out_of_the_loss():
    model, target = nn.Linear(4, 2), torch.tensor([[1.0, float("nan")], [0.0, 1.0]])

    def loss():
        known = ~target.isnan()
        return (model(torch.ones(2, 4))[known] - target[known]).square().mean()

    return _trained(model, loss)


def mask_of_minus_infinity():
    model, mask = nn.Linear(4, 4), torch.full((4, 4), -float("inf")).triu(1)
    return _trained(model, lambda: torch.softmax(model(torch.eye(4)) + mask, -1)[:, 0].mean())


def nan_only_in_a_metric():
    model, rows = nn.Linear(4, 1), torch.tensor([1.0, float("nan")])

    def loss():
        rows.mean()
        return model(torch.ones(2, 4)).mean()

    return _trained(model, loss)


def born_in_the_step_itself():
    model = nn.Linear(4, 1)
    return _trained(model, lambda: (model(torch.ones(2, 4)) * torch.log(torch.zeros(1))).mean())  # NUM002


def hole_filled_on_the_device__rehearsal():
    model, data = nn.Linear(4, 1).cuda(), torch.ones(2, 4)
    data[1, 2] = float("nan")
    return _trained(model, lambda: model(torch.nan_to_num(data.cuda())).square().mean())
