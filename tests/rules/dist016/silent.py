"""DIST016 must say nothing about these."""

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


def eight_images_of_a_rank():
    ranks()
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    return _steps(DistributedDataParallel(net), samples=8)


def norms_of_groups():
    ranks()
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4))
    return _steps(DistributedDataParallel(net))


def frozen():
    ranks()
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4).eval(), nn.ReLU())
    return _steps(DistributedDataParallel(net))


def a_plain_module():
    return _steps(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()))


def large_batches_and_a_small_one():
    ranks()
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        for samples in (16, 2):
            optimizer.zero_grad()
            model(torch.randn(samples, 3, 8, 8)).square().mean().backward()
            optimizer.step()

    return step
