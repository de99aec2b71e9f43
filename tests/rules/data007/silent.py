"""Near misses: DATA007 must stay silent on all of these."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def loader_without_workers_that_is_quick():
    model = nn.Linear(8, 1)
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 8)), batch_size=4))

    def step():
        (x,) = next(batches)
        model(x).mean().backward()

    return step


def slow_model_and_a_quicker_loader():
    model = nn.Linear(8, 1)

    def collate(rows):
        time.sleep(0.0005)
        return torch.stack(rows)

    batches = iter(DataLoader(list(torch.ones(4000, 8)), batch_size=4, collate_fn=collate))

    def step():
        model(next(batches)).mean().backward()
        time.sleep(0.02)

    return step


def slow_first_batch_only():
    model, first = nn.Linear(8, 1), [True]

    def collate(rows):
        if first:
            time.sleep(0.1)
            first.clear()
        return torch.stack(rows)

    batches = iter(DataLoader(list(torch.ones(4000, 8)), batch_size=4, collate_fn=collate))

    def step():
        model(next(batches)).mean().backward()

    return step


def no_loader_at_all():
    model = nn.Linear(8, 1)

    def step():
        time.sleep(0.002)
        model(torch.ones(4, 8)).mean().backward()

    return step
