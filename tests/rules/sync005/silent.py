"""Near misses: SYNC005 must stay silent on all of these."""

import torch
from torch import nn


def mask_applied_by_multiplication():
    model = nn.Linear(8, 1)

    def step():
        error = model(torch.ones(4, 8)).square()
        hard = (error >= error.mean()).to(error.dtype)
        ((error * hard).sum() / hard.sum()).backward()

    return step


def mask_filled_with_a_number():
    model = nn.Linear(8, 1)

    def step():
        out = model(torch.ones(4, 8))
        out.masked_fill(out > 9, 0.0).mean().backward()

    return step


def rows_by_index_not_by_mask():
    model, rows = nn.Linear(8, 1), torch.tensor([0, 2])

    def step():
        model(torch.ones(4, 8))[rows].mean().backward()

    return step


def three_argument_where():
    model = nn.Linear(8, 1)

    def step():
        out = model(torch.ones(4, 8))
        torch.where(out > 0, out, -out).mean().backward()

    return step


def mask_of_host_data_before_the_move():
    model, labels = nn.Linear(8, 1), torch.tensor([0, 1, 2, 1])

    def step():
        rows = (labels == 1).nonzero().squeeze(1)
        model(torch.ones(len(rows), 8)).mean().backward()

    return step
