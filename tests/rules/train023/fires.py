import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import losses


@losses(lambda: nn.Linear(8, 1))
def divided_by_their_sum(model):
    x, y, weights = torch.randn(16, 8), torch.randn(16, 1), torch.rand(16, 1)
    error = (model(x) - y).square().mean()  # TRAIN023
    loss = (weights * error).sum() / weights.sum()
    return loss


@losses(lambda: nn.Linear(8, 1))
def frequencies_by_exposure(model):
    x, y, exposure = torch.randn(16, 8), torch.rand(16), torch.rand(16) + 0.1
    nll = F.poisson_nll_loss(model(x).squeeze(1), y / exposure)  # TRAIN023
    return (nll * exposure).sum() / exposure.sum()


@losses(lambda: (nn.Linear(8, 4), nn.TripletMarginLoss()))
def triplets_by_confidence(model, criterion):
    anchor, near, far = (model(torch.randn(16, 8)) for _ in range(3))
    return (criterion(anchor, near, far) * torch.rand(16)).mean()  # TRAIN023


@losses(lambda: nn.Linear(8, 1))
def focal_loss_of_a_mean(model):
    y = (torch.rand(16, 1) > 0.5).float()
    bce = F.binary_cross_entropy_with_logits(model(torch.randn(16, 8)), y)  # TRAIN023
    alpha = 0.25 * y + 0.75 * (1 - y)
    return (alpha * (1 - torch.exp(-bce)) ** 2 * bce).mean()
