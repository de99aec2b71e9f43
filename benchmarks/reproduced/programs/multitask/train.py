import random
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn

from objectives import HEADS, WeightedSum

torch.set_num_threads(1)


@dataclass
class Hparams:
    seed: int = 42
    vocab: int = 200
    seqlen: int = 20
    d: int = 48
    heads: int = 4
    layers: int = 2
    batch: int = 24
    steps: int = 30
    lr: float = 1e-3
    groups: tuple = ("quality", "content", "meta")
    weights: list = field(default_factory=lambda: [1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.25])


def set_seed(seed: int):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)


class ReviewData:
    def __init__(self, hp, n=600):
        self.rng = np.random.default_rng(hp.seed)
        self.tok = self.rng.integers(1, hp.vocab, size=(n, hp.seqlen))
        trait = self.rng.normal(size=(hp.vocab, 16))[self.tok].mean(1)
        self.y = {}
        for name, (kind, k) in HEADS.items():
            score = trait @ self.rng.normal(size=(16, k))
            self.y[name] = score.argmax(1) if kind == "cls" else score[:, 0].astype(np.float32)

    def batches(self, size):
        while True:
            order = self.rng.permutation(len(self.tok))
            for i in range(0, len(order) - size + 1, size):
                idx = order[i:i + size]
                yield torch.from_numpy(self.tok[idx]), {k: torch.from_numpy(v[idx]) for k, v in self.y.items()}


class Encoder(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.tok = nn.Embedding(hp.vocab, hp.d)
        self.pos = nn.Parameter(0.02 * torch.randn(1, hp.seqlen + 1, hp.d))
        self.cls = nn.Parameter(torch.zeros(1, 1, hp.d))
        layer = nn.TransformerEncoderLayer(hp.d, hp.heads, 2 * hp.d, dropout=0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, hp.layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(hp.d)
        self.out = nn.ModuleDict({n: nn.Linear(hp.d, k) for n, (_, k) in HEADS.items()})

    def forward(self, ids):
        x = torch.cat([self.cls.expand(ids.size(0), -1, -1), self.tok(ids)], 1) + self.pos
        h = self.norm(self.body(x)[:, 0])
        return {n: f(h) for n, f in self.out.items()}


class Trainer:
    def __init__(self, hp):
        self.hp = hp
        self.model = Encoder(hp)
        self.objective = WeightedSum(hp.groups, hp.weights)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=hp.lr)
        self.data = ReviewData(hp).batches(hp.batch)

    def fit(self):
        self.model.train()
        for step in range(1, self.hp.steps + 1):
            ids, targets = next(self.data)
            loss, parts = self.objective(self.model(ids), targets)
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            print(f"{step:03d} total={loss.item():.7f} rating={parts['rating']:.4f} topic={parts['topic']:.4f}")


if __name__ == "__main__":
    hp = Hparams()
    set_seed(hp.seed)
    Trainer(hp).fit()
