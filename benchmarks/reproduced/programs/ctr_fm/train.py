"""Click-through-rate model: factorisation machine on hashed categorical features."""
import random
from typing import Dict, List, NamedTuple

import numpy as np
import torch
from torch import nn


class Options(NamedTuple):
    seed: int = 17
    rows: int = 3000
    buckets: int = 1024
    rank: int = 8
    batch: int = 128
    steps: int = 34
    lr: float = 0.02
    l2: float = 1e-5


SITES = [f"site-{i:02d}.example" for i in range(25)]
DEVICES = ["ios", "android", "desktop", "tablet"]
CAMPAIGNS = [f"cmp{i:03d}" for i in range(40)]
HOURS = [f"{h:02d}" for h in range(24)]


def impressions(n: int, rng: np.random.Generator):
    pull = {name: rng.normal(scale=0.8) for name in SITES + CAMPAIGNS + DEVICES}
    rows, clicks = [], []
    for _ in range(n):
        row = {
            "site": SITES[rng.integers(len(SITES))],
            "device": DEVICES[rng.integers(len(DEVICES))],
            "campaign": CAMPAIGNS[rng.integers(len(CAMPAIGNS))],
            "hour": HOURS[rng.integers(24)],
        }
        z = -1.0 + pull[row["site"]] + pull[row["campaign"]] + pull[row["device"]]
        rows.append(row)
        clicks.append(float(rng.random() < 1 / (1 + np.exp(-z))))
    return rows, np.asarray(clicks, dtype=np.float32)


class HashingEncoder:
    CROSSES = (("site", "device"), ("campaign", "device"))

    def __init__(self, buckets: int):
        self.buckets = buckets

    def slot(self, name: str, value: str) -> int:
        return hash(f"{name}={value}") % self.buckets

    def encode(self, row: Dict[str, str]) -> List[int]:
        out = [self.slot(k, v) for k, v in row.items()]
        for a, b in self.CROSSES:
            out.append(self.slot(f"{a}*{b}", f"{row[a]}|{row[b]}"))
        return out

    def __call__(self, rows) -> torch.Tensor:
        return torch.tensor([self.encode(r) for r in rows], dtype=torch.long)


class FM(nn.Module):
    def __init__(self, buckets: int, rank: int):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(()))
        self.linear = nn.Embedding(buckets, 1)
        self.factors = nn.Embedding(buckets, rank)
        nn.init.normal_(self.linear.weight, std=0.01)
        nn.init.normal_(self.factors.weight, std=0.05)

    def forward(self, idx):
        v = self.factors(idx)
        pair = 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(-1)
        return self.bias + self.linear(idx).sum((1, 2)) + pair


def seed_run(seed: int):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)


def auc(score, label):
    order = np.argsort(score, kind="stable")
    rank = np.empty(len(score))
    rank[order] = np.arange(1, len(score) + 1)
    pos = label == 1
    n1, n0 = pos.sum(), (~pos).sum()
    return (rank[pos].sum() - n1 * (n1 + 1) / 2) / (n1 * n0)


def main(opt=Options()):
    torch.set_num_threads(1)
    seed_run(opt.seed)
    rows, y = impressions(opt.rows, np.random.default_rng(opt.seed))
    X, y = HashingEncoder(opt.buckets)(rows), torch.from_numpy(y)
    cut = int(0.85 * len(y))
    fm = FM(opt.buckets, opt.rank)
    sgd = torch.optim.Adam(fm.parameters(), lr=opt.lr, weight_decay=opt.l2)
    logloss = nn.BCEWithLogitsLoss()
    for step in range(opt.steps):
        pick = torch.randperm(cut)[: opt.batch]
        loss = logloss(fm(X[pick]), y[pick])
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        if step % 5 == 0:
            print(f"{step:03d} logloss {loss.item():.8f}")
    with torch.no_grad():
        s = fm(X[cut:])
    print(f"test logloss {logloss(s, y[cut:]).item():.8f}  auc {auc(s.numpy(), y[cut:].numpy()):.4f}")


if __name__ == "__main__":
    main()
