"""CKPT006 must be reported once for each of these, at the marked line (a checkpoint has no line)."""

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


def _saved(lr, schedule=None):
    optimizer = torch.optim.AdamW(nn.Linear(4, 1).parameters(), lr=lr)
    scheduler = schedule(optimizer) if schedule is not None else None
    optimizer.step()
    if scheduler is not None:
        scheduler.step()
    return optimizer.state_dict()


def _step(model, optimizer):
    def step():
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()

    return step


def a_run_that_resumes_with_the_old_rate():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    optimizer.load_state_dict(_saved(3e-3))  # CKPT006
    return _step(model, optimizer)


def a_run_whose_scheduler_started_from_another_rate():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    state = _saved(1e-4, lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 100))
    optimizer.load_state_dict(state)  # CKPT006
    return _step(model, optimizer)
