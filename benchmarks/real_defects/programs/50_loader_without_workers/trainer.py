"""Score-based graph generation: adjacency matrices prepared by the loader."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NODES, FEATURES, BATCH = 16, 8, 16


class Graphs(Dataset):
    def __init__(self, size=4096):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        points = rng.random((NODES, 2))
        distance = np.linalg.norm(points[:, None] - points[None], axis=-1)
        adjacency = ((distance < 0.35) & ~np.eye(NODES, dtype=bool)).astype(np.float32)
        degree = adjacency.sum(axis=1)
        laplacian = np.diag(degree) - adjacency
        spectrum = np.linalg.eigh(laplacian)[1][:, :FEATURES - 1]
        features = np.concatenate([degree[:, None], np.abs(spectrum)], axis=1).astype(np.float32)
        return torch.from_numpy(features), torch.from_numpy(adjacency)


loader = DataLoader(
    Graphs(),
    batch_size=BATCH,
    shuffle=True,
    drop_last=True,
    num_workers=0,
    pin_memory=device.type == "cuda",
)


def endless():
    while True:
        yield from loader


class ScoreNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.node = nn.Linear(FEATURES, 48)
        self.edge = nn.Sequential(nn.Linear(97, 48), nn.ELU(), nn.Linear(48, 1))

    def forward(self, x, adjacency):
        h = F.elu(adjacency @ self.node(x))
        left = h[:, :, None].expand(-1, -1, NODES, -1)
        pair = torch.cat([left + left.transpose(1, 2), (left - left.transpose(1, 2)).abs(), adjacency[..., None]], dim=-1)
        return self.edge(pair).squeeze(-1)


stream = endless()
model = ScoreNet().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
noise_rng = torch.Generator(device=device).manual_seed(50)
count = 0


def step():
    global count
    x, adjacency = next(stream)
    x, adjacency = x.to(device, non_blocking=True), adjacency.to(device, non_blocking=True)
    noise = torch.randn(adjacency.shape, device=device, generator=noise_rng).triu(1)
    noise = noise + noise.transpose(1, 2)
    loss = (0.5 * model(x, adjacency + 0.5 * noise) + noise).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    count += 1
    if count % 50 == 0:
        print(count, loss.item())
