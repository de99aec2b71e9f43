import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.rules.programs import fed

ROWS = [np.ones(3000, dtype=np.float32) for _ in range(16)]


def _backward_on(made, width=3000):
    model = nn.Linear(width, 1)
    return lambda: model(made()).mean().backward()


def arrays_stacked_first():
    return _backward_on(lambda: torch.tensor(np.stack(ROWS)))


def a_few_small_arrays():
    sizes = [np.array([3, 4]), np.array([5, 6])]
    return _backward_on(lambda: torch.tensor(sizes, dtype=torch.float32), 2)


def made_once_before_the_steps():
    x = torch.tensor(ROWS)
    return _backward_on(lambda: x)


def default_collation_stacks_arrays():
    return fed(DataLoader(ROWS * 100, batch_size=16), width=3000)


def tensors_made_one_by_one():
    return _backward_on(lambda: torch.stack([torch.from_numpy(row) for row in ROWS]))
