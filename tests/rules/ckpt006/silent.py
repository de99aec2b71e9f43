"""Near misses: CKPT006 must stay silent on all of these."""

import json
from pathlib import Path

import torch
from torch import nn


def _trained(config, schedule, lr=0.01):
    Path("config.json").write_text(json.dumps(config))
    optimizer = torch.optim.AdamW(nn.Linear(4, 1).parameters(), lr=lr)
    scheduler = schedule(optimizer)

    def step():
        optimizer.step()
        parts = {"optimizer": optimizer.state_dict()}
        if scheduler is not None:
            scheduler.step()
            parts["scheduler"] = scheduler.state_dict()
        torch.save(parts, "last.pt")

    return step


def decayed_from_the_configured_rate():
    return _trained({"lr": "1e-2"}, lambda o: torch.optim.lr_scheduler.StepLR(o, 2, gamma=0.5))


def in_the_middle_of_its_warm_up():
    return _trained({"lr": 0.01}, lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: step / 100))


def lowered_by_hand_without_a_scheduler():
    return _trained({"lr": 0.1}, lambda o: None)


def one_cycle_as_configured():
    config = {"max_lr": 0.05, "total_steps": 100}
    return _trained(config, lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=100))


def rate_of_something_else_beside_the_right_one():
    return _trained({"lr": 0.01, "discriminator": {"lr": 0.0004}}, lambda o: torch.optim.lr_scheduler.StepLR(o, 5))


def no_rate_in_the_configuration():
    return _trained({"batch_size": 8, "weight_decay": 0.1}, lambda o: None)


def _saved(lr, schedule=None):
    optimizer = torch.optim.AdamW(nn.Linear(4, 1).parameters(), lr=lr)
    scheduler = schedule(optimizer) if schedule is not None else None
    optimizer.step()
    if scheduler is not None:
        scheduler.step()
    return optimizer.state_dict()


def _resumed(state, after=lambda optimizer: None, **given):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), **given)
    optimizer.load_state_dict(state)
    after(optimizer)

    def step():
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()

    return step


def a_run_that_sets_its_rate_after_the_load():
    def set_rate(optimizer):
        for group in optimizer.param_groups:
            group["lr"] = 1e-4

    return _resumed(_saved(3e-3), set_rate, lr=1e-4)


def a_run_that_goes_on_with_the_same_rate():
    return _resumed(_saved(3e-3), lr=3e-3)


def a_run_whose_scheduler_had_brought_the_rate_down():
    return _resumed(_saved(3e-3, lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.1)), lr=3e-3)


def a_run_whose_rate_was_lowered_by_hand():
    return _resumed(_saved(3e-4), lr=3e-3)


def a_run_that_configures_no_rate():
    return _resumed(_saved(3e-2))


def a_run_whose_one_cycle_is_made_after_the_load():
    def one_cycle(optimizer):
        torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=100)

    return _resumed(_saved(0.01, lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=100)), one_cycle, lr=0.01)


def a_step_that_is_taken_back():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    before = _saved(3e-3)

    def step():
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
        optimizer.load_state_dict(before)

    return step
