"""Crop yield regression from histograms stored in .npy files."""
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ROOT = tempfile.mkdtemp(prefix="yield_")
BATCH, BANDS = 16, 9


def write_files():
    rng = np.random.default_rng(30)
    images = rng.random((384, BANDS, 16, 16), dtype=np.float32)
    np.save(os.path.join(ROOT, "images.npy"), images)
    np.save(os.path.join(ROOT, "yields.npy"), images.mean(axis=(1, 2, 3)) * 10)


class CropYield(Dataset):
    def __init__(self, root):
        self.root = root
        self.size = len(np.load(os.path.join(root, "yields.npy"), mmap_mode="r"))

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        images = np.load(os.path.join(self.root, "images.npy"))
        yields = np.load(os.path.join(self.root, "yields.npy"))
        return torch.from_numpy(images[index].copy()), torch.tensor(yields[index])


write_files()
loader = DataLoader(CropYield(ROOT), batch_size=BATCH, shuffle=True, drop_last=True, num_workers=2,
                    persistent_workers=True, pin_memory=device.type == "cuda")


def repeat():
    while True:
        yield from loader


data = repeat()
model = nn.Sequential(nn.Conv2d(BANDS, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU(),
                      nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
count = 0


def step():
    global count
    images, yields = next(data)
    images = images.to(device, non_blocking=True)
    yields = yields.to(device, non_blocking=True)
    loss = F.mse_loss(model(images).squeeze(1), yields)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    count += 1
    if count % 50 == 0:
        print(count, loss.item())
