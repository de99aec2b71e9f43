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
