import torch
from torch import nn

from tests.rules.programs import trained_once


def _grown(mask_of, decay=0.1, hook=True):
    words, head = nn.Embedding(12, 8), nn.Linear(8, 1)
    if hook:
        words.weight.register_hook(lambda grad: grad * mask_of(grad))
    groups = [{"params": [words.weight]}, {"params": head.parameters()}]
    optimizer = torch.optim.AdamW(groups, lr=0.1, weight_decay=decay)
    model = nn.Sequential(words, head)
    return lambda: trained_once(model, optimizer, torch.arange(12))


def old_rows_of_a_matrix__note():
    weight = nn.Parameter(torch.randn(12, 8))
    kept = torch.arange(12)[:, None] >= 8
    weight.register_hook(lambda grad: torch.where(kept, grad, 0.0))
    optimizer = torch.optim.SGD([weight], lr=0.1, weight_decay=0.1)

    def step():
        optimizer.zero_grad()
        (torch.ones(4, 12) @ weight).square().mean().backward()
        optimizer.step()  # OPT020

    return step
