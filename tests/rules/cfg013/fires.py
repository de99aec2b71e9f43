import copy

import torch
from torch import nn

from tests.rules.programs import trained_once


def _model():
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


def averaged_in_a_class():
    class Average:
        def __init__(self, model):
            self.module = copy.deepcopy(model).eval().requires_grad_(False)

        @torch.no_grad()
        def update(self, model):
            old = dict(self.module.named_parameters())  # CFG013
            for name, new in model.named_parameters():
                old[name].data.mul_(0.9).add_(new.data, alpha=0.1)

    model = _model()
    average, optimizer = Average(model), torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        x = torch.randn(16, 4) + 1
        trained_once(model, optimizer, x)
        average.update(model)
        with torch.no_grad():
            average.module(x)

    return step


def teacher_of_a_consistency_loss():
    model = _model()
    teacher = copy.deepcopy(model).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        x = torch.randn(16, 4) + 1
        with torch.no_grad():
            wanted = teacher(x)
        optimizer.zero_grad()
        (model(x) - wanted - 1).square().mean().backward()
        optimizer.step()
        for old, new in zip(teacher.parameters(), model.parameters(), strict=True):
            old.data.lerp_(new.data, 0.1)  # CFG013

    return step
