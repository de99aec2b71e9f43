import copy
import io

import torch
from torch import nn

from tests.rules.programs import trained_once


def _stepping(follow, saved, lr=0.1):
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    optimizer, other = torch.optim.Adam(model.parameters(), lr=lr), copy.deepcopy(model)

    def step():
        trained_once(model, optimizer, torch.randn(16, 4) + 1)
        follow(other, model)
        torch.save(saved(model, optimizer, other), io.BytesIO())

    return step


def _averaged(other, model):
    for old, new in zip(other.parameters(), model.parameters(), strict=True):
        old.data.lerp_(new.data, 0.1)


def _both(model, optimizer, other=None):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def saved_under_another_name():
    def saved(model, optimizer, other):
        return {**_both(model, optimizer), "smooth": copy.deepcopy(other.state_dict())}

    return _stepping(_averaged, saved)


def saved_in_a_file_of_its_own():
    def follow(other, model):
        _averaged(other, model)
        torch.save({name: each.clone() for name, each in other.state_dict().items()}, io.BytesIO())

    return _stepping(follow, _both)


def weights_for_inference_alone():
    return _stepping(_averaged, lambda model, optimizer, other: model.state_dict())


def best_weights_kept_as_a_copy():
    def follow(other, model):
        other.load_state_dict(model.state_dict())

    return _stepping(follow, _both)


def weights_of_the_step_before():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    optimizer, last = torch.optim.SGD(model.parameters(), lr=0.1), {}

    def step():
        last.update({name: each.detach().clone() for name, each in model.named_parameters()})
        trained_once(model, optimizer, torch.randn(16, 4) + 1)
        torch.save(_both(model, optimizer), io.BytesIO())
        return len(last)

    return step


def another_model_that_stays():
    return _stepping(lambda other, model: None, _both)
