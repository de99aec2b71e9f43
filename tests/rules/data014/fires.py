import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, random_split

from tests.rules.programs import endless, on_stream


class _Jitter:
    def __call__(self, x):
        x += np.random.default_rng().normal(0, 0.1, x.shape)
        return x


def transform_of_an_arrays_row():
    class Signals(Dataset):
        def __init__(self):
            self.signals = np.random.default_rng(0).normal(size=(64, 8))
            self.augment = _Jitter()

        def __len__(self):
            return len(self.signals)

        def __getitem__(self, index):
            signal = self.signals[index]  # DATA014
            signal = self.augment(signal)
            return torch.from_numpy(signal).float()

    rows = random_split(Signals(), [48, 16])[0]
    return on_stream(endless(DataLoader(rows, batch_size=4, shuffle=True)))


def dropped_columns_of_a_wrapped_dataset():
    torch.manual_seed(0)

    class Base(Dataset):
        def __init__(self):
            self.samples = [{"x": torch.randn(8), "y": n} for n in range(64)]

        def __len__(self):
            return len(self.samples)

        def __getitem__(self, index):
            return self.samples[index]

    class Masked(Dataset):
        def __init__(self, base):
            self.base = base

        def __len__(self):
            return len(self.base)

        def __getitem__(self, index):
            sample = self.base[index]  # DATA014
            sample["x"][torch.rand(8) < 0.3] = 0
            return sample["x"]

    return on_stream(endless(DataLoader(Masked(Base()), batch_size=4, shuffle=True)))
