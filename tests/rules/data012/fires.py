"""DATA012 must report exactly the marked lines."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader


def _step(loader, size, narrow):
    model, batches = nn.Linear(size, 1), iter(loader)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)

    def step():
        optimizer.zero_grad()
        model(narrow(next(batches))).square().mean().backward()
        optimizer.step()

    return step


def array_of_numpys_default():
    class Noise:
        def __len__(self):
            return 4000

        def __getitem__(self, index):
            strain = np.random.default_rng(index).standard_normal(1024)
            return torch.from_numpy(strain)  # DATA012

    return _step(DataLoader(Noise(), batch_size=16), 1024, lambda x: x.float())


def list_of_arrays_under_default_collation():
    rows = [np.full(2048, index / 7) for index in range(2000)]
    loader = DataLoader(rows, batch_size=8)  # DATA012
    return _step(loader, 2048, lambda x: x.to(torch.float32))
