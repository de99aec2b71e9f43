"""CKPT006 must be reported once for each of these (a checkpoint has no line)."""

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


def one_cycle_of_an_earlier_run():
    return _trained({"train": {"max_lr": 0.002}}, lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=100))


def cosine_from_another_rate():
    return _trained({"lr": 3e-4}, lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 100))


def lower_rate_configured_and_no_scheduler():
    return _trained({"learning_rate": 1e-4}, lambda o: None)


def schedule_shorter_than_the_run():
    return _trained({"total_steps": 5000}, lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=100))


def peak_changed_while_the_base_agrees():
    return _trained({"lr": 0.002, "max_lr": 0.01}, lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=100))
