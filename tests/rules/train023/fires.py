import torch
from torch import nn

from tests.rules.programs import losses


@losses(lambda: nn.Linear(8, 1))
def divided_by_their_sum(model):
    x, y, weights = torch.randn(16, 8), torch.randn(16, 1), torch.rand(16, 1)
    error = (model(x) - y).square().mean()  # TRAIN023
    loss = (weights * error).sum() / weights.sum()
    return loss
