import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset

from tests.rules.programs import endless, on_stream


class _Rows(Dataset):
    def __init__(self, draw):
        self.draw = draw

    def __len__(self):
        return 400

    def __getitem__(self, index):
        return torch.full((8,), float(index)) + torch.as_tensor(self.draw(), dtype=torch.float32)


class _Noise:
    def __init__(self, rng):
        self.rng = rng

    def __call__(self):
        return self.rng.uniform(-1, 1)


def dataset_with_a_generator_of_numpy():
    noise = _Noise(None)
    noise.rng = np.random.default_rng(7)
    rows = _Rows(noise)
    loader = DataLoader(rows, batch_size=4, num_workers=2, persistent_workers=True)  # DATA011
    return on_stream(endless(loader))


def transform_below_a_subset_with_a_random_state():
    rows = Subset(_Rows(_Noise(np.random.RandomState(3))), range(200))
    loader = DataLoader(rows, batch_size=4, num_workers=2)  # DATA011
    return on_stream(endless(loader))


def bound_method_of_pythons_random():
    rows = _Rows(random.Random(1).random)
    loader = DataLoader(rows, batch_size=4, num_workers=2)  # DATA011
    return on_stream(endless(loader))


def collate_function_with_a_generator_of_torch():
    generator = torch.Generator().manual_seed(5)

    def jitter(samples):
        return torch.stack(samples) + torch.randn(8, generator=generator)

    loader = DataLoader(_Rows(float), batch_size=4, num_workers=2, collate_fn=jitter)  # DATA011
    return on_stream(endless(loader))


def generator_that_the_class_makes():
    class Crops(_Rows):
        def __init__(self):
            super().__init__(self.corner)
            self.rng = np.random.default_rng(11)  # DATA011

        def corner(self):
            return self.rng.integers(0, 9, 8)

    return on_stream(endless(DataLoader(Crops(), batch_size=4, num_workers=2)))
