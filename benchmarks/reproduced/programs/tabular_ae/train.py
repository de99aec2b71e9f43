import argparse
import os
import random

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

from datamodule import TableData

torch.set_num_threads(1)


def seed_all(seed):
    os.environ["PYTHONHASHSEED"] = str(seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class SwapNoise(nn.Module):
    """Replace a fraction of the cells by values of other rows of the batch."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training:
            return x, torch.zeros_like(x)
        m = (torch.rand_like(x) < self.p).float()
        return torch.where(m.bool(), x[torch.randperm(x.size(0))], x), m


class DenoisingAE(nn.Module):
    def __init__(self, nnum, ncat, dim=8, hid=64, code=12, p=0.15):
        super().__init__()
        self.noise = SwapNoise(p)
        self.emb = nn.Embedding(ncat, dim)
        self.enc = nn.Sequential(nn.Linear(nnum + dim, hid), nn.BatchNorm1d(hid), nn.SiLU(),
                                 nn.Dropout(0.1), nn.Linear(hid, code))
        self.dec = nn.Sequential(nn.Linear(code, hid), nn.SiLU(), nn.Linear(hid, hid), nn.SiLU())
        self.rec, self.mask, self.cat = nn.Linear(hid, nnum), nn.Linear(hid, nnum), nn.Linear(hid, ncat)

    def forward(self, x, c):
        xn, m = self.noise(x)
        h = self.dec(self.enc(torch.cat([xn, self.emb(c)], 1)))
        return self.rec(h), self.mask(h), self.cat(h), m


def step_loss(model, x, c):
    rec, mask, cat, m = model(x, c)
    w = 1 + 2 * m
    return (w * (rec - x) ** 2).mean() + 0.2 * F.binary_cross_entropy_with_logits(mask, m) \
        + 0.1 * F.cross_entropy(cat, c)


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    tot = n = 0.0
    for x, c in data.val_loader():
        x = data.scale(x)
        tot += F.mse_loss(model(x, c)[0], x, reduction="sum").item()
        n += x.numel()
    return tot / n


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", default=2024, type=int)
    p.add_argument("--epochs", default=2, type=int)
    p.add_argument("--lr", default=2e-3, type=float)
    p.add_argument("--batch-size", default=64, type=int)
    return p.parse_args()


def main():
    args = get_args()
    data = TableData(args.batch_size)
    seed_all(args.seed)
    model = DenoisingAE(data.mean.numel(), 6)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    for epoch in range(args.epochs):
        model.train()
        for i, (x, c) in enumerate(data.train_loader()):
            loss = step_loss(model, data.scale(x), c)
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"e{epoch} b{i:02d} loss {loss.item():.7f}")
        print(f"e{epoch} val mse {evaluate(model, data):.6f}")


if __name__ == "__main__":
    main()
