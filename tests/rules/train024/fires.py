import torch
from torch import nn
from torch.nn import functional as F


def one_class():
    model = nn.Linear(8, 1)
    return lambda: F.cross_entropy(model(torch.randn(16, 8)), torch.zeros(16).long()).backward()  # TRAIN024


def weights_divided_by_their_own_mean():
    model = nn.Linear(8, 1)

    def step():
        weights = torch.rand(16, 1)
        weights = weights / weights.mean(dim=1, keepdim=True)  # TRAIN024
        (weights * model(torch.randn(16, 8)).square()).mean().backward()

    return step
