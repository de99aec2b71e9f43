"""DIST016 must name the marked lines."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.echo_group import ranks


def _steps(model, samples=2, size=8):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(torch.randn(samples, 3, size, size)).square().mean().backward()
        optimizer.step()

    return step


def two_images_of_a_rank():
    ranks()
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    return _steps(DistributedDataParallel(net))  # DIST016


def four_samples_without_a_size():
    ranks()
    net = nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten(), nn.BatchNorm1d(4))
    model = DistributedDataParallel(net)  # DIST016
    return _steps(model, samples=4)
