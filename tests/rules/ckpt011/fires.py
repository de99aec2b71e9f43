import copy
import io

import torch
from torch import nn

from tests.rules.programs import trained_once


class _Average:
    def __init__(self, model):
        self.shadow = {name: each.detach().clone() for name, each in model.named_parameters()}

    def update(self, model):
        for name, each in model.named_parameters():
            self.shadow[name] = 0.9 * self.shadow[name] + 0.1 * each.detach()


def dictionary_of_an_object():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer, average = torch.optim.Adam(model.parameters(), lr=0.1), _Average(model)

    def step():
        trained_once(model, optimizer, torch.randn(16, 4) + 1)
        average.update(model)
        parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(parts, io.BytesIO())  # CKPT011

    return step


def copy_of_the_model():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    optimizer, follower = torch.optim.Adam(model.parameters(), lr=0.1), copy.deepcopy(model)

    def step():
        trained_once(model, optimizer, torch.randn(16, 4) + 1)
        for old, new in zip(follower.parameters(), model.parameters(), strict=True):
            old.data.lerp_(new.data, 0.1)
        parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}
        torch.save(parts, io.BytesIO())  # CKPT011

    return step


def dictionary_of_a_function():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    smooth = {name: each.detach().clone() for name, each in model.named_parameters()}

    def step():
        trained_once(model, optimizer, torch.randn(16, 4) + 1)
        for name, each in model.named_parameters():
            smooth[name].lerp_(each.detach(), 0.1)
        parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(parts, io.BytesIO())  # CKPT011

    return step


def list_of_a_function():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parameters = list(model.parameters())
    smooth = [each.detach().clone() for each in parameters]

    def step():
        trained_once(model, optimizer, torch.randn(16, 4) + 1)
        for old, new in zip(smooth, parameters, strict=True):
            old.mul_(0.9).add_(new.detach(), alpha=0.1)
        parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(parts, io.BytesIO())  # CKPT011

    return step
