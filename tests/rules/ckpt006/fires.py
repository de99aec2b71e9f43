import torch
from torch import nn

from tests.rules.programs import saving, trained_with


def one_cycle_of_an_earlier_run():
    return saving({"train": {"max_lr": 0.002}}, lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=100))


def cosine_from_another_rate():
    return saving({"lr": 3e-4}, lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 100))


def schedule_shorter_than_the_run():
    return saving({"total_steps": 5000}, lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=100))


def peak_changed_while_the_base_agrees():
    return saving({"lr": 0.002, "max_lr": 0.01}, lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=100))


def _resumed(optimizer, parameter, load):
    load()
    return trained_with(optimizer, lambda: parameter.square().sum())


def _saved(rate, schedule=None):
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=rate, momentum=0.9)
    scheduler = schedule(optimizer) if schedule is not None else None
    for _ in range(3):
        parameter.square().sum().backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return optimizer.state_dict()


def rate_lowered_and_the_old_state_loaded():
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=1e-4, momentum=0.9)
    state = _saved(5e-4)
    return _resumed(optimizer, parameter, lambda: optimizer.load_state_dict(state))  # CKPT006


def rate_given_that_is_the_default_too():
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=1e-3)
    state = _saved(5e-2)
    return _resumed(optimizer, parameter, lambda: optimizer.load_state_dict(state))  # CKPT006
