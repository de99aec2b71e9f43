import torch
from torch import nn
from torch.nn import functional as F


def _trained(loss):
    model = nn.Linear(8, 1)
    return lambda: loss(model(torch.randn(16, 8)), torch.randn(16, 1), torch.rand(16, 1)).backward()


def before_the_mean__no_note():
    return _trained(lambda out, y, w: (F.mse_loss(out, y, reduction="none") * w).mean())


def all_equal__no_note():
    return _trained(lambda out, y, w: (F.mse_loss(out, y) * torch.ones_like(w)).mean())


def kept_apart__no_note():
    return _trained(lambda out, y, w: (F.mse_loss(out, y) * w)[0, 0])
