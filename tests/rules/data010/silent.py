import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.rules.programs import trained_once

ROWS = [np.ones(3000, dtype=np.float32) for _ in range(16)]


def arrays_stacked_first():
    model = nn.Linear(3000, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        trained_once(model, optimizer, torch.tensor(np.stack(ROWS)))

    return step


def a_few_small_arrays():
    sizes = [np.array([3, 4]), np.array([5, 6])]
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        trained_once(model, optimizer, torch.tensor(sizes, dtype=torch.float32))

    return step


def made_once_before_the_steps():
    model, x = nn.Linear(3000, 1), torch.tensor(ROWS)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        trained_once(model, optimizer, x)

    return step


def default_collation_stacks_arrays():
    stream = iter(DataLoader(ROWS * 100, batch_size=16))
    model = nn.Linear(3000, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        trained_once(model, optimizer, next(stream))

    return step


def tensors_made_one_by_one():
    model = nn.Linear(3000, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        trained_once(model, optimizer, torch.stack([torch.from_numpy(row) for row in ROWS]))

    return step
