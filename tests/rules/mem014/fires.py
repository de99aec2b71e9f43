"""MEM014 must report exactly the marked lines."""

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


def gradients_cleared_behind_the_forward__rehearsal():
    model, x = _Scales().cuda(), torch.ones(1, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)

    def step():
        loss = model(x, depth=2)
        optimizer.zero_grad()  # MEM014
        loss.backward()
        optimizer.step()

    return step


def gradients_filled_with_zeros__rehearsal():
    model, x = _Scales().cuda(), torch.ones(1, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)

    def step():
        optimizer.zero_grad(set_to_none=False)  # MEM014
        model(x, depth=4).backward()
        optimizer.step()

    return step


def temporaries_of_foreach_at_the_peak__rehearsal():
    model, x = _Scales().cuda(), torch.ones(1, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(x, depth=0).backward()
        optimizer.step()  # MEM014

    return step
