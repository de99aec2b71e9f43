import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info


class Cells(Dataset):
    """Blurry discs on a gradient background, with masks."""

    def __init__(self, n, size, seed, augment=True):
        base = np.random.default_rng(seed)
        self.augment = augment
        self.rng = np.random.default_rng(seed + 1)
        self.items = [self._draw(size, base) for _ in range(n)]

    @staticmethod
    def _draw(size, rng):
        yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
        mask = np.zeros((size, size), dtype=np.float32)
        for _ in range(rng.integers(2, 5)):
            cy, cx = rng.uniform(4, size - 4, size=2)
            mask[(yy - cy) ** 2 + (xx - cx) ** 2 < rng.uniform(2.5, 5.0) ** 2] = 1.0
        slope = rng.uniform(-0.3, 0.3, size=2)
        img = 0.8 * mask + slope[0] * yy / size + slope[1] * xx / size
        return (img + 0.2 * rng.standard_normal(img.shape)).astype(np.float32), mask

    def _jitter(self, img, mask):
        k = int(self.rng.integers(4))
        img, mask = np.rot90(img, k), np.rot90(mask, k)
        gain = self.rng.uniform(0.7, 1.3)
        noise = 0.05 * self.rng.standard_normal(img.shape)
        return (img * gain + noise).astype(np.float32), mask

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        img, mask = self.items[i]
        if self.augment:
            img, mask = self._jitter(img, mask)
        return torch.from_numpy(img.copy())[None], torch.from_numpy(mask.copy())[None]


def init_worker(worker_id):
    # without this all workers replay one and the same augmentation stream
    info = get_worker_info()
    info.dataset.rng = np.random.default_rng()
