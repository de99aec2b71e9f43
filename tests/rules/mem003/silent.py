"""Near misses: MEM003 must stay silent on all of these."""

import torch
from torch import nn


def large_temporaries_freed_each_step():
    model = nn.Linear(8, 1)

    def step():
        x = torch.ones(1500, 1000)
        (model(torch.ones(4, 8)).mean() * x.mean()).backward()

    return step


def bounded_buffer_that_is_full():
    model, seen = nn.Linear(8, 1), []

    def step():
        model(torch.ones(4, 8)).mean().backward()
        seen.append(torch.ones(500, 1000))
        del seen[:-2]

    return step


def numbers_logged():
    model, log = nn.Linear(8, 1), []

    def step():
        loss = model(torch.ones(4, 8)).mean()
        loss.backward()
        log.append(loss.item())

    return step


def optimizer_state_made_in_the_first_step__cuda():
    model = nn.Linear(1024, 1024, device="cuda")
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        model(torch.ones(8, 1024, device="cuda")).mean().backward()
        optimizer.step()

    return step


def gradients_made_anew_in_each_step__rehearsal():
    model = torch.nn.Linear(1024, 1024, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        model(torch.ones(64, 1024, device="cuda")).square().mean().backward()
        optimizer.step()

    return step
