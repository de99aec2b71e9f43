import torch
from torch import nn

from tests.rules.programs import Scales, numbered, optimized, trained_with

STEPS = 6  # each is dear, and all are alike


def gradients_cleared_before_the_forward__rehearsal():
    model, x = Scales().cuda(), torch.ones(1, device="cuda")
    return trained_with(torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False), lambda: model(x, depth=2))


def gradients_accumulated_on_purpose__rehearsal():
    model, x = Scales().cuda(), torch.ones(1, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)

    def step(number):
        model(x, depth=2).backward()
        if number % 20 == 0:
            optimizer.step()
            optimizer.zero_grad()

    return numbered(step)


def foreach_where_activations_set_the_peak__rehearsal():
    model, x = Scales().cuda(), torch.ones(1, device="cuda")
    return trained_with(torch.optim.AdamW(model.parameters(), lr=1e-3), lambda: model(x, depth=4))


def fused_optimizer__rehearsal():
    model, x = Scales().cuda(), torch.ones(1, device="cuda")
    return trained_with(torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True), lambda: model(x))


def batches_of_many_sizes__rehearsal():
    model, x = Scales().cuda(), torch.ones(1, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)

    def step(number):
        loss = model(x, depth=1 + number % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return numbered(step)


def small_model__rehearsal():
    model, optimizer = optimized(nn.Linear(64, 64, device="cuda"), torch.optim.AdamW)

    def step():
        loss = model(torch.ones(4, 64, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step
