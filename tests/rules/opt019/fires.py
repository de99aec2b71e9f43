import copy

import torch
from torch import nn

from tests.rules.programs import case_of, trained_once

DECAY = 0.99


def _parts():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, copy.deepcopy(model).requires_grad_(False)


def _averaged(update):
    model = update.args[0]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        trained_once(model, optimizer, torch.randn(16, 8))
        with torch.no_grad():
            update()

    return step


averaged = case_of(_averaged, _parts)
"""A case of the function below, which updates an average of a model after each step."""


def _kept(make):
    """As ``averaged``; the function is given the model and what ``make`` made of its state."""
    return case_of(_averaged, lambda: (model := _parts()[0], make(model)))


def _pairs(model, average):
    return zip(average.parameters(), model.parameters(), strict=True)


def _aliases(model):
    return {name: p.detach() for name, p in model.named_parameters()}


@averaged
def decay_as_the_weight_of_lerp(model, average):
    for old, new in _pairs(model, average):
        old.lerp_(new, DECAY)  # OPT019


@averaged
def decay_as_the_weight_of_foreach_lerp(model, average):
    torch._foreach_lerp_([*average.parameters()], [*model.parameters()], DECAY)  # OPT019


@averaged
def shares_swapped_in_place(model, average):
    for old, new in _pairs(model, average):
        old.data.mul_(1 - DECAY).add_(new.data, alpha=DECAY)  # OPT019


@averaged
def shares_swapped_in_a_copy(model, average):
    for old, new in _pairs(model, average):
        old.data.copy_(DECAY * new.data + (1 - DECAY) * old.data)  # OPT019


@averaged
def shares_swapped_of_a_difference(model, average):
    for old, new in _pairs(model, average):
        old -= DECAY * (old - new)  # OPT019


@_kept(lambda model: {name: p.detach().clone() for name, p in model.named_parameters()})
def shares_swapped_in_a_dictionary(model, shadow):
    for name, p in model.named_parameters():
        average = (1.0 - DECAY) * shadow[name] + DECAY * p.data  # OPT019
        shadow[name] = average.clone()


@averaged
def shares_swapped_in_a_state_dict(model, average):
    old, new = average.state_dict(), model.state_dict()
    mixed = {key: torch.lerp(new[key], old[key], 1 - DECAY) for key in old}
    average.load_state_dict(mixed)  # OPT019


@_kept(_aliases)
def alias_that_lerps(model, shadow):
    for name, p in model.named_parameters():
        shadow[name].lerp_(p, 1 - DECAY)  # OPT019


@_kept(_aliases)
def alias_that_is_scaled(model, shadow):
    for name, p in model.named_parameters():
        shadow[name].mul_(DECAY).add_(p, alpha=1 - DECAY)  # OPT019


@_kept(lambda model: model.state_dict())
def alias_in_a_state_dict(model, shadow):
    state = model.state_dict()
    torch._foreach_mul_([*shadow.values()], DECAY)
    torch._foreach_add_([*shadow.values()], [*state.values()], alpha=1 - DECAY)  # OPT019


@_kept(lambda model: [p.data for p in model.parameters()])
def backup_without_a_copy__note(model, backup):
    for p, old in zip(model.parameters(), backup, strict=True):
        p.copy_(old)  # OPT019


def alias_on_a_gpu__rehearsal():
    model = nn.Linear(8, 1).cuda()
    shadow = [p.detach() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        trained_once(model, optimizer, torch.randn(16, 8, device="cuda"))
        with torch.no_grad():
            for old, new in zip(shadow, model.parameters(), strict=True):
                old.lerp_(new, 1 - DECAY)  # OPT019

    return step
