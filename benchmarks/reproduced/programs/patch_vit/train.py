"""Tiny ViT on oriented gratings."""
import os
import random

import numpy as np
import torch
import torch.nn as nn

from schedule import BudgetSchedule


def seed_everything(seed=42, strict=True):
    os.environ["PYTHONHASHSEED"] = str(seed)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(strict)


class Gratings(torch.utils.data.Dataset):
    def __init__(self, n, size=16, classes=6):
        axis = torch.arange(size, dtype=torch.float32)
        yy, xx = torch.meshgrid(axis, axis, indexing="ij")
        self.y = torch.randint(classes, (n,))
        theta = self.y.float() * np.pi / classes + 0.08 * torch.randn(n)
        phase = 2 * np.pi * torch.rand(n)
        wave = xx * theta.cos()[:, None, None] + yy * theta.sin()[:, None, None]
        self.x = torch.sin(0.9 * wave + phase[:, None, None]) + 0.4 * torch.randn(n, size, size)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class PatchViT(nn.Module):
    def __init__(self, size=16, patch=4, dim=48, depth=2, heads=4, classes=6):
        super().__init__()
        self.patch = patch
        n_tok = (size // patch) ** 2
        self.embed = nn.Linear(patch * patch, dim)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, n_tok + 1, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.1, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, classes))

    def forward(self, img):
        p = self.patch
        tok = img.unfold(1, p, p).unfold(2, p, p).reshape(img.size(0), -1, p * p)
        h = torch.cat([self.cls.expand(len(img), -1, -1), self.embed(tok)], 1) + self.pos
        return self.head(self.enc(h)[:, 0])


class Trainer:
    def __init__(self, epochs=3, batch=40, lr=4e-3):
        data = Gratings(480)
        self.loader = torch.utils.data.DataLoader(
            data, batch_size=batch, shuffle=True, generator=torch.Generator().manual_seed(42))
        self.epochs = epochs
        self.model = PatchViT()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=0.02)
        self.schedule = BudgetSchedule(self.opt, lr, epochs * len(self.loader))

    def train_epoch(self, epoch):
        good = total = 0
        for k, (x, y) in enumerate(self.loader):
            self.schedule.step()
            out = self.model(x)
            loss = nn.functional.cross_entropy(out, y)
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            good += (out.argmax(-1) == y).sum().item()
            total += len(y)
            if k % 4 == 0:
                print(f"epoch {epoch} batch {k:2d}: {loss.item():.8f}")
        return good / total

    def fit(self):
        for epoch in range(self.epochs):
            acc = self.train_epoch(epoch)
            print(f"epoch {epoch}: accuracy {acc:.3f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    seed_everything(42)
    Trainer().fit()
