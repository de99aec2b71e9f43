import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from tests.rules.programs import endless, on_stream


class _Rows(Dataset):
    rng = None

    def __len__(self):
        return 400

    def noise(self, index):
        return self.rng.uniform(-1, 1)

    def __getitem__(self, index):
        return torch.full((8,), float(index)) + float(self.noise(index))


def _own(worker):
    get_worker_info().dataset.rng = np.random.default_rng(torch.initial_seed() % 2**63)


def seeded_in_each_worker():
    rows = _Rows()
    rows.rng = np.random.default_rng(7)
    return on_stream(endless(DataLoader(rows, batch_size=4, num_workers=2, worker_init_fn=_own)))


def generators_that_torch_seeds():
    class Rows(_Rows):
        def noise(self, index):
            return np.random.uniform() + random.random() + torch.rand(())

    return on_stream(endless(DataLoader(Rows(), batch_size=4, num_workers=2)))


def seeded_by_the_sample():
    class Rows(_Rows):
        def noise(self, index):
            self.rng.seed(index)
            return self.rng.random()

    rows = Rows()
    rows.rng = random.Random(7)
    return on_stream(endless(DataLoader(rows, batch_size=4, num_workers=2)))


def made_when_the_first_sample_is_asked_for():
    class Rows(_Rows):
        def noise(self, index):
            if self.rng is None:
                self.rng = np.random.default_rng(torch.initial_seed() % 2**63)
            return self.rng.random()

    return on_stream(endless(DataLoader(Rows(), batch_size=4, num_workers=2)))


def drawn_from_while_the_dataset_is_made():
    class Rows(_Rows):
        def noise(self, index):
            return self.offsets[index]

    rows = Rows()
    rows.rng = np.random.default_rng(7)
    rows.offsets = rows.rng.uniform(size=400)
    return on_stream(endless(DataLoader(rows, batch_size=4, num_workers=2)))


def one_worker():
    rows = _Rows()
    rows.rng = np.random.default_rng(7)
    return on_stream(endless(DataLoader(rows, batch_size=4, num_workers=1)))


def no_workers():
    rows = _Rows()
    rows.rng = np.random.default_rng(7)
    return on_stream(endless(DataLoader(rows, batch_size=4)))


def workers_that_agree_on_an_order():
    class Stream(IterableDataset):
        def __init__(self):
            self.rng = np.random.default_rng(7)

        def __iter__(self):
            info = get_worker_info()
            for index in self.rng.permutation(400)[info.id :: info.num_workers]:
                yield torch.full((8,), float(index))

    return on_stream(endless(DataLoader(Stream(), batch_size=4, num_workers=2)))
