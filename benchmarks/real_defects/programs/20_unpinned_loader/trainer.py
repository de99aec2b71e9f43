"""Electron-microscopy segmentation from patches of a volume."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PATCH, BATCH = 32, 8


class PatchDataset(Dataset):
    def __init__(self, length=512):
        rng = torch.Generator().manual_seed(20)
        self.raw = torch.rand(8, 96, 96, generator=rng)
        self.labels = (F.avg_pool2d(self.raw[:, None], 5, 1, 2)[:, 0] > 0.5).float()
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        z = index % self.raw.size(0)
        y, x = torch.randint(0, 96 - PATCH, (2,)).tolist()
        window = (z, slice(y, y + PATCH), slice(x, x + PATCH))
        return self.raw[window][None].clone(), self.labels[window][None].clone()


loader = DataLoader(
    PatchDataset(),
    batch_size=BATCH,
    shuffle=True,
    drop_last=True,
    num_workers=2,
    persistent_workers=True,
)


def forever(source):
    while True:
        yield from source


batches = forever(loader)
model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                      nn.Conv2d(16, 1, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
iteration = 0


def dice_loss(logits, target, eps=1e-7):
    prob = logits.sigmoid()
    return 1 - 2 * (prob * target).sum() / (prob.pow(2).sum() + target.pow(2).sum()).clamp(min=eps)


def step():
    global iteration
    raw, target = next(batches)
    raw = raw.to(device, non_blocking=True)
    target = target.to(device, non_blocking=True)
    loss = dice_loss(model(raw), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    iteration += 1
    if iteration % 50 == 0:
        print(iteration, loss.item())
