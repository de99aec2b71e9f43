"""DATA007 must report exactly the marked lines."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    """Each sample takes about 1 ms to make."""

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((8,), float(index))


def loaded_in_the_step_itself():
    model = nn.Linear(8, 1)
    loader = DataLoader(Slow(), batch_size=4)  # DATA007
    batches = iter(loader)

    def step():
        model(next(batches)).mean().backward()

    return step


def slow_collate_function():
    model = nn.Linear(8, 1)

    def collate(rows):
        time.sleep(0.004)
        return torch.stack(rows)

    batches = iter(DataLoader(list(torch.ones(4000, 8)), batch_size=4, collate_fn=collate))  # DATA007

    def step():
        model(next(batches)).mean().backward()

    return step
