import torch
from torch import nn

from tests.rules.programs import Scales

STEPS = 6  # each is dear, and all are alike


def gradients_cleared_before_the_forward__rehearsal():
    model, x = Scales().cuda(), torch.ones(1, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)

    def step():
        optimizer.zero_grad()
        model(x, depth=2).backward()
        optimizer.step()

    return step


def gradients_accumulated_on_purpose__rehearsal():
    model, x, count = Scales().cuda(), torch.ones(1, device="cuda"), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)

    def step():
        count[0] += 1
        model(x, depth=2).backward()
        if count[0] % 20 == 0:
            optimizer.step()
            optimizer.zero_grad()

    return step


def foreach_where_activations_set_the_peak__rehearsal():
    model, x = Scales().cuda(), torch.ones(1, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(x, depth=4).backward()
        optimizer.step()

    return step


def fused_optimizer__rehearsal():
    model, x = Scales().cuda(), torch.ones(1, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step():
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()

    return step


def batches_of_many_sizes__rehearsal():
    model, x, count = Scales().cuda(), torch.ones(1, device="cuda"), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)

    def step():
        count[0] += 1
        loss = model(x, depth=1 + count[0] % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def small_model__rehearsal():
    model = nn.Linear(64, 64, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        loss = model(torch.ones(4, 64, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step
