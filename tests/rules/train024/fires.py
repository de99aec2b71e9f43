import torch
from torch import nn
from torch.nn import functional as F


def one_class():
    model = nn.Linear(8, 1)
    return lambda: F.cross_entropy(model(torch.randn(16, 8)), torch.zeros(16).long()).backward()  # TRAIN024
