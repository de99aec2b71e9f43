"""Near misses: MEM014 must stay silent on all of these."""

import torch
from torch import nn


class _Scales(nn.Module):
    """Large and cheap: vectors that scale a number, through ``depth`` activations each."""

    def __init__(self, size=2**20):
        super().__init__()
        self.weights = nn.ParameterList([torch.ones(size) for _ in range(8)])

    def forward(self, x, depth=1):
        total = 0.0
        for weight in self.weights:
            out = weight * x
            for _ in range(depth):
                out = out.relu()
            total = total + out.mean()
        return total


def gradients_cleared_before_the_forward__rehearsal():
    model, x = _Scales().cuda(), torch.ones(1, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)

    def step():
        optimizer.zero_grad()
        model(x, depth=2).backward()
        optimizer.step()

    return step


def gradients_accumulated_on_purpose__rehearsal():
    model, x, count = _Scales().cuda(), torch.ones(1, device="cuda"), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)

    def step():
        count[0] += 1
        model(x, depth=2).backward()
        if count[0] % 20 == 0:
            optimizer.step()
            optimizer.zero_grad()

    return step


def foreach_where_activations_set_the_peak__rehearsal():
    model, x = _Scales().cuda(), torch.ones(1, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(x, depth=4).backward()
        optimizer.step()

    return step


def fused_optimizer__rehearsal():
    model, x = _Scales().cuda(), torch.ones(1, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step():
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()

    return step


def batches_of_many_sizes__rehearsal():
    model, x, count = _Scales().cuda(), torch.ones(1, device="cuda"), [0]
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
