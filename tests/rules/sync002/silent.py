import torch
from torch import nn


def branch_on_a_python_number__rehearsal():
    model, count = nn.Linear(8, 1, device="cuda"), [0]

    def step():
        count[0] += 1
        if count[0] > 3:
            model(torch.ones(4, 8, device="cuda")).mean().backward()

    return step


def branch_on_none_and_shape__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        out = model(torch.ones(4, 8, device="cuda"))
        if out is not None and out.shape[0] > 2 and len(out) == out.numel():
            out.mean().backward()

    return step


def nan_guard_every_twentieth_step__rehearsal():
    model, count = nn.Linear(8, 1, device="cuda"), [0]

    def step():
        loss = model(torch.ones(4, 8, device="cuda")).mean()
        count[0] += 1
        if count[0] % 20 == 0 and torch.isnan(loss):
            raise ValueError("loss is NaN")
        loss.backward()

    return step


def coin_tossed_on_the_host__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        x = torch.ones(4, 8, device="cuda")
        if torch.rand(()) < 0.5:
            x = x.flip(0)
        model(x).mean().backward()

    return step


def choice_made_on_the_device__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        loss = model(torch.ones(4, 8, device="cuda")).mean()
        torch.where(loss > 0, loss, -loss).backward()

    return step
