"""CKPT010 must report exactly the marked lines."""

import copy
import os
import tempfile

import torch
from torch import nn
from torch.optim import lr_scheduler


def _parts(schedule=lambda optimizer: lr_scheduler.StepLR(optimizer, 10), kind=torch.optim.AdamW):
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = kind(model.parameters(), lr=1e-3)
    return model, optimizer, schedule(optimizer)


def _train(model, optimizer, scheduler):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    scheduler.step()


def _saved(parts, names=("model", "optimizer", "scheduler"), inside=""):
    for _ in range(15):
        _train(*parts)
    state = {name: each.state_dict() for name, each in zip(names, parts, strict=True)}
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    torch.save({inside: state, "epoch": 3} if inside else {**state, "epoch": 3}, path)
    return path


def schedule_that_begins_again():
    path = _saved(_parts())
    model, optimizer, scheduler = _parts()
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])  # CKPT010
    return lambda: _train(model, optimizer, scheduler)


def warm_up_in_a_class_of_its_own_that_begins_again_behind_a_first_run():
    def schedule(optimizer):
        parts = [
            lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 4),
            lr_scheduler.CosineAnnealingLR(optimizer, 96),
        ]
        return lr_scheduler.SequentialLR(optimizer, parts, [4])

    class Run:
        def __init__(self):
            self.parts = _parts(schedule)

        def resume(self, path):
            kept = torch.load(path, weights_only=True)["train"]
            self.parts[0].load_state_dict(kept["net"])
            self.parts[1].load_state_dict(kept["opt"])  # CKPT010

    def main():
        path = _saved(_parts(schedule), ("net", "opt", "sched"), inside="train")
        second = Run()
        second.resume(path)
        for _ in range(200):
            _train(*second.parts)
            yield

    run = main()
    return lambda: next(run)


def moments_that_are_forgotten():
    path = _saved(_parts())
    model, optimizer, scheduler = _parts()
    state = torch.load(path)
    model.load_state_dict(state["model"])
    scheduler.load_state_dict(state["scheduler"])  # CKPT010
    return lambda: _train(model, optimizer, scheduler)


def plateau_whose_rate_was_brought_back():
    def schedule(optimizer):
        return lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)

    model, optimizer, scheduler = _parts(schedule)
    for _ in range(6):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        scheduler.step(1.0)
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    torch.save({"o": optimizer.state_dict(), "s": scheduler.state_dict()}, path)
    model, optimizer, scheduler = _parts(schedule)
    optimizer.load_state_dict(copy.copy(torch.load(path))["o"])  # CKPT010

    def step():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step(1.0)

    return step
