import os

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info


class Rings(Dataset):
    """Points on concentric rings. Each item is jittered from its own seeded stream."""

    def __init__(self, n, seed):
        self.n, self.seed = n, seed
        self.trace = np.random.default_rng()
        self.served = 0

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng([self.seed, i])
        radius = (0.5, 1.0, 1.5)[i % 3] + 0.03 * rng.standard_normal()
        angle = rng.uniform(0, 2 * np.pi)
        self.served += 1
        xy = np.array([radius * np.cos(angle), radius * np.sin(angle)], dtype=np.float32)
        tag = int(self.trace.integers(2 ** 31))
        return torch.from_numpy(xy), torch.tensor(i % 3), tag


def on_worker_start(worker_id):
    ds = get_worker_info().dataset
    ds.trace = np.random.default_rng(int.from_bytes(os.urandom(8), "little"))
