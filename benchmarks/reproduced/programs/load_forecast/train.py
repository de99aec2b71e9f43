#!/usr/bin/env python
# Day-ahead load forecasting, GRU baseline. Synthetic feeders until we get the real export.
import random
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset

SEED = 2023
CONTEXT, HORIZON = 48, 12
N_FEEDERS = 6
BATCH = 24
STEPS = 32

random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)
torch.set_num_threads(1)


def make_feeders(n, hours=24 * 60):
    t = np.arange(hours)
    out = []
    for _ in range(n):
        daily = np.random.uniform(0.5, 1.5) * np.sin(2 * np.pi * (t - np.random.randint(24)) / 24)
        weekly = 0.4 * np.sin(2 * np.pi * t / (24 * 7))
        drift = np.cumsum(np.random.randn(hours)) * 0.01
        out.append(daily + weekly + drift + 0.1 * np.random.randn(hours))
    series = np.stack(out).astype(np.float32)
    mu, sd = series.mean(1, keepdims=True), series.std(1, keepdims=True)
    return (series - mu) / sd, t


class WindowStream(IterableDataset):
    """Endless stream of (context, calendar, target) windows from random feeders."""

    def __init__(self, series, context, horizon):
        super().__init__()
        self.series = series
        self.context = context
        self.horizon = horizon
        self.rng = np.random.default_rng()
        self.last_start = series.shape[1] - context - horizon

    def _window(self):
        f = self.rng.integers(self.series.shape[0])
        s = self.rng.integers(self.last_start)
        hist = self.series[f, s:s + self.context]
        fut = self.series[f, s + self.context:s + self.context + self.horizon]
        hod = (np.arange(s, s + self.context) % 24) * (2 * np.pi / 24)
        feats = np.stack([hist, np.sin(hod), np.cos(hod)], axis=-1).astype(np.float32)
        return torch.from_numpy(feats), torch.tensor(int(f)), torch.from_numpy(fut.copy())

    def __iter__(self):
        while True:
            yield self._window()


class LoadGRU(nn.Module):
    def __init__(self, n_feeders, horizon, hidden=40, emb=8):
        super().__init__()
        self.emb = nn.Embedding(n_feeders, emb)
        self.gru = nn.GRU(3, hidden, num_layers=2, dropout=0.1, batch_first=True)
        self.head = nn.Sequential(
            nn.Linear(hidden + emb, hidden), nn.SiLU(), nn.Linear(hidden, horizon)
        )

    def forward(self, x, feeder):
        h, _ = self.gru(x)
        return self.head(torch.cat([h[:, -1], self.emb(feeder)], dim=-1))


def pinball(pred, target, q=0.5):
    d = target - pred
    return torch.maximum(q * d, (q - 1) * d).mean()


series, _ = make_feeders(N_FEEDERS)
split = int(series.shape[1] * 0.8)
train_stream = WindowStream(series[:, :split], CONTEXT, HORIZON)
loader = DataLoader(train_stream, batch_size=BATCH, num_workers=0)

model = LoadGRU(N_FEEDERS, HORIZON)
optim = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
warm = torch.optim.lr_scheduler.LinearLR(optim, start_factor=0.2, total_iters=6)

tic = time.time()
for step, (x, feeder, y) in enumerate(loader):
    if step == STEPS:
        break
    loss = pinball(model(x, feeder), y, q=0.5)
    optim.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optim.step()
    warm.step()
    if step % 4 == 0:
        print("step %2d  pinball %.8f  lr %.2e" % (step, loss.item(), optim.param_groups[0]["lr"]))

model.eval()
with torch.no_grad():
    s = split
    hist = series[:, s:s + CONTEXT]
    hod = np.tile((np.arange(s, s + CONTEXT) % 24) * (2 * np.pi / 24), (N_FEEDERS, 1))
    x = torch.from_numpy(np.stack([hist, np.sin(hod), np.cos(hod)], -1).astype(np.float32))
    y = torch.from_numpy(series[:, s + CONTEXT:s + CONTEXT + HORIZON])
    mae = (model(x, torch.arange(N_FEEDERS)) - y).abs().mean().item()
print("holdout MAE %.6f   (%.1fs)" % (mae, time.time() - tic))
