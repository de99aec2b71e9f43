"""Modulation recognition with random impairments applied in the loader's workers."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SAMPLES, CLASSES, BATCH = 128, 4, 32


class Signals(Dataset):
    def __init__(self, size=1024):
        self.size = size
        self.time = np.arange(SAMPLES, dtype=np.float32)
        self.rng = np.random.default_rng(43)

    def impair(self, iq):
        phase = np.float32(self.rng.uniform(0, 2 * np.pi))
        rotation = np.array([[np.cos(phase), -np.sin(phase)], [np.sin(phase), np.cos(phase)]], dtype=np.float32)
        noise = self.rng.standard_normal(iq.shape, dtype=np.float32)
        return rotation @ iq + np.float32(0.3) * noise

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        label = index % CLASSES
        angle = np.float32(0.05 * (label + 1)) * self.time
        iq = np.stack([np.cos(angle), np.sin(angle)])
        return torch.from_numpy(self.impair(iq)), label


loader = DataLoader(
    Signals(), batch_size=BATCH, shuffle=True, drop_last=True,
    num_workers=2, persistent_workers=True, pin_memory=device.type == "cuda",
)


def endless():
    while True:
        yield from loader


stream = endless()
model = nn.Sequential(nn.Conv1d(2, 16, 7, 2, 3), nn.ReLU(), nn.Conv1d(16, 32, 5, 2, 2), nn.ReLU(),
                      nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, CLASSES)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
count = 0


def step():
    global count
    iq, labels = next(stream)
    iq = iq.to(device, non_blocking=True)
    labels = labels.to(device, non_blocking=True)
    loss = F.cross_entropy(model(iq), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    count += 1
    if count % 50 == 0:
        print(count, loss.item())
