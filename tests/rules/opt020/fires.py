import torch
from torch import nn


def _rows():
    return (torch.arange(12) >= 8).float()[:, None]


def _trained(model, optimizer, batch, after=lambda: None):
    def step():
        optimizer.zero_grad()
        model(batch()).square().mean().backward()
        after()
        optimizer.step()

    return step


def _ids():
    return torch.randint(0, 12, (16,))


def masked_by_a_hook_and_in_place():
    table, head, mask = nn.Embedding(12, 4), nn.Linear(4, 12), _rows()
    table.weight.register_hook(lambda gradient: gradient * mask)
    model = nn.Sequential(table, head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)  # OPT020

    def after():
        head.weight.grad[:8] = 0.0

    return _trained(model, optimizer, _ids, after)
