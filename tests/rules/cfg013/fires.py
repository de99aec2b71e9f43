import copy

import torch
from torch import nn

from tests.rules.programs import optimized


def averaged_by_data_and_evaluated_now_and_then():
    model, optimizer = optimized(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)))
    average = copy.deepcopy(model).eval().requires_grad_(False)
    steps = []

    def step():
        optimizer.zero_grad()
        model(torch.randn(4, 1, 8, 8)).sin().mean().backward()
        optimizer.step()
        own = dict(average.named_parameters())
        with torch.no_grad():
            for name, each in model.named_parameters():
                own[name].data.mul_(0.9).add_(each.data, alpha=0.1)
            steps.append(len(steps))
            if len(steps) % 3 == 0:
                average(torch.randn(4, 1, 8, 8))  # CFG013

    return step


def averaged_and_evaluated_once_in_all_steps():
    """While steps are timed, and not while they are diagnosed."""
    model, optimizer = optimized(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()))
    average = copy.deepcopy(model).eval().requires_grad_(False)
    steps = []

    def step():
        optimizer.zero_grad()
        model(torch.randn(16, 8)).sin().mean().backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_([*average.parameters()], [*model.parameters()], 0.1)
            steps.append(len(steps))
            if len(steps) == 4:
                average(torch.randn(16, 8))  # CFG013

    return step
