"""Near misses: DATA012 must stay silent on all of these."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader


def _step(loader, narrow, model):
    batches = iter(loader)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)

    def step():
        optimizer.zero_grad()
        model(narrow(next(batches))).square().mean().backward()
        optimizer.step()

    return step


def rows_in_float32():
    rows = [np.full(2048, index / 7, dtype=np.float32) for index in range(2000)]
    return _step(DataLoader(rows, batch_size=8), lambda x: x, nn.Linear(2048, 1))


def model_in_float64():
    rows = [np.full(2048, index / 7) for index in range(2000)]
    return _step(DataLoader(rows, batch_size=8), lambda x: x, nn.Linear(2048, 1).double())


def small_targets_in_float64():
    rows = [(np.ones(2048, dtype=np.float32), np.full(4, index / 7)) for index in range(2000)]
    loader = DataLoader(rows, batch_size=8)
    return _step(loader, lambda x: x[0] + 0 * x[1].float().sum(), nn.Linear(2048, 1))


def batch_that_the_loss_takes_as_it_comes():
    rows = [np.full(2048, index / 7) for index in range(2000)]
    batches, model = iter(DataLoader(rows, batch_size=8)), nn.Linear(8, 2048)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)

    def step():
        optimizer.zero_grad()
        (model(torch.ones(8, 8)) - next(batches)).square().mean().backward()
        optimizer.step()

    return step


def whole_numbers_of_eight_bytes():
    rows = [np.arange(2048) + index for index in range(2000)]
    return _step(DataLoader(rows, batch_size=8), lambda x: x.float(), nn.Linear(2048, 1))


def only_some_batches_are_wide():
    rows = [np.full(2048, index / 7, dtype=(np.float32, np.float64)[index % 5 == 0]) for index in range(2000)]
    return _step(DataLoader(rows, batch_size=None), lambda x: x.float().expand(8, -1), nn.Linear(2048, 1))
