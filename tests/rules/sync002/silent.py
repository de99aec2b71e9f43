"""Near misses: SYNC002 must stay silent on all of these."""

import torch
from torch import nn


def branch_on_a_python_number():
    model, count = nn.Linear(8, 1), [0]

    def step():
        count[0] += 1
        if count[0] > 3:
            model(torch.ones(4, 8)).mean().backward()

    return step


def branch_on_none_and_shape():
    model = nn.Linear(8, 1)

    def step():
        out = model(torch.ones(4, 8))
        if out is not None and out.shape[0] > 2 and len(out) == out.numel():
            out.mean().backward()

    return step


def nan_guard_every_twentieth_step():
    model, count = nn.Linear(8, 1), [0]

    def step():
        loss = model(torch.ones(4, 8)).mean()
        count[0] += 1
        if count[0] % 20 == 0 and torch.isnan(loss):
            raise ValueError("loss is NaN")
        loss.backward()

    return step


def coin_tossed_on_the_host():
    model = nn.Linear(8, 1)

    def step():
        x = torch.ones(4, 8)
        if torch.rand(()) < 0.5:
            x = x.flip(0)
        model(x).mean().backward()

    return step


def choice_made_on_the_device():
    model = nn.Linear(8, 1)

    def step():
        loss = model(torch.ones(4, 8)).mean()
        torch.where(loss > 0, loss, -loss).backward()

    return step
