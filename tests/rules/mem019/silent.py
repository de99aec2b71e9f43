import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.rules.programs import endless


class _Rows(Dataset):
    def __init__(self, number, read):
        self.rows = [(str(n), float(n)) for n in range(number)]
        self.values = np.arange(number, dtype=np.float32)
        self.read = read

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return torch.tensor([self.read(self, index)])


def _on(number, read, **more):
    given = {"num_workers": 4, "persistent_workers": True, **more}
    loader = DataLoader(_Rows(number, read), batch_size=64, shuffle=True, **given)
    batches, model = endless(loader), nn.Linear(1, 1)

    def step():
        model(next(batches)).square().mean().backward()

    return step


def list_that_is_not_read__no_note():
    return _on(400_000, lambda rows, index: float(rows.values[index]))


def few_samples__no_note():
    return _on(9_000, lambda rows, index: rows.rows[index][1])


def no_workers__no_note():
    more = {"num_workers": 0, "persistent_workers": False}
    return _on(400_000, lambda rows, index: rows.rows[index][1], **more)
