import itertools

import torch
from torch import nn

from tests.rules.programs import looked_at, numbered, scored


def branch_on_a_python_number__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step(number):
        if number > 3:
            model(torch.ones(4, 8, device="cuda")).mean().backward()

    return numbered(step)


def branch_on_none_and_shape__rehearsal():
    def look(out):
        if out is not None and out.shape[0] > 2 and len(out) == out.numel():
            out.sum()

    return looked_at(look)


def nan_guard_every_twentieth_step__rehearsal():
    done = itertools.count(1)

    def look(out):
        if next(done) % 20 == 0 and torch.isnan(out.mean()):
            raise ValueError("loss is NaN")

    return looked_at(look)


def coin_tossed_on_the_host__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        x = torch.ones(4, 8, device="cuda")
        if torch.rand(()) < 0.5:
            x = x.flip(0)
        model(x).mean().backward()

    return step


def choice_made_on_the_device__rehearsal():
    return scored(lambda out: torch.where(out > 0, out, -out).mean())
