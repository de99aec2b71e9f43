"""DIST014 must name the marked lines."""

import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.echo_group import ranks


class _Masked(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.register_buffer("mask", torch.ones(size, size).tril(), persistent=False)

    def forward(self, x):
        return self.mask[:8, :8] @ self.layer(x)


def a_mask_of_a_megabyte():
    ranks()
    model = DDP(_Masked(512))  # DIST014
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()

    return step


def small_tables_are_a_note():
    ranks()
    inner = torch.nn.Sequential(_Masked(32), _Masked(32))
    model = DDP(inner, broadcast_buffers=True)  # DIST014
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()

    return step
