"""Conditional GAN on rings."""
import os
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from rings import Rings, on_worker_start


@dataclass(frozen=True)
class Cfg:
    seed: int = 404
    n: int = 640
    batch: int = 64
    z: int = 8
    width: int = 64
    epochs: int = 2
    lr: float = 1e-3
    log_every_s: float = 0.25


class Cond(nn.Module):
    def __init__(self, d_in, d_out, width):
        super().__init__()
        self.label = nn.Embedding(3, 8)
        self.net = nn.Sequential(nn.Linear(d_in + 8, width), nn.LeakyReLU(0.2), nn.Dropout(0.05),
                                 nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, d_out))

    def forward(self, x, y):
        return self.net(torch.cat([x, self.label(y)], 1))


class OneHotCache:
    """Targets by (shape, value) so that they are not allocated in each step."""

    def __init__(self):
        self._store = {}

    def get(self, like, value):
        key = hash((tuple(like.shape), f"{value:.2f}"))
        if key not in self._store:
            self._store[key] = torch.full_like(like, value)
        return self._store[key]


def preview(gen, cfg, n=64):
    """Fresh samples each time one looks; leaves the training stream alone."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.seed()
        gen.eval()
        pts = gen(torch.randn(n, cfg.z), torch.randint(3, (n,)))
        gen.train()
    return pts.norm(dim=1).mean().item()


def bootstrap(values, rounds=200):
    rng = np.random.default_rng()
    means = [rng.choice(values, len(values)).mean() for _ in range(rounds)]
    return np.percentile(means, [5, 95])


def main(cfg=Cfg()):
    torch.set_num_threads(1)
    random.seed(cfg.seed)
    np.random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    G, D = Cond(cfg.z, 2, cfg.width), Cond(2, 1, cfg.width)
    opts = {id(m): torch.optim.Adam(m.parameters(), lr=cfg.lr, betas=(0.5, 0.9)) for m in (G, D)}
    dl = DataLoader(Rings(cfg.n, cfg.seed), cfg.batch, shuffle=True, drop_last=True, num_workers=2,
                    worker_init_fn=on_worker_start, persistent_workers=True,
                    generator=torch.Generator().manual_seed(cfg.seed))
    bce, targets = nn.BCEWithLogitsLoss(), OneHotCache()
    print(f"run {os.urandom(4).hex()} started {time.strftime('%H:%M:%S')}")
    history, tags, last = [], set(), time.monotonic()
    for epoch in range(cfg.epochs):
        for x, y, tag in dl:
            tags.update(tag.tolist())
            fake = G(torch.randn(len(x), cfg.z), y)
            real_out, fake_out = D(x, y), D(fake.detach(), y)
            d_loss = bce(real_out, targets.get(real_out, 0.9)) + bce(fake_out, targets.get(fake_out, 0.0))
            opts[id(D)].zero_grad()
            d_loss.backward()
            opts[id(D)].step()
            g_out = D(fake, y)
            g_loss = bce(g_out, targets.get(g_out, 1.0))
            opts[id(G)].zero_grad()
            g_loss.backward()
            opts[id(G)].step()
            history.append((d_loss.item(), g_loss.item()))
            if time.monotonic() - last > cfg.log_every_s:
                last = time.monotonic()
                print(f"  step {len(history)}: preview radius {preview(G, cfg):.4f}")
        d, g = history[-1]
        print(f"epoch {epoch}: d {d:.8f} g {g:.8f} ({len(tags)} items traced)")
    lo, hi = bootstrap(np.array([d for d, _ in history]))
    print(f"mean d-loss between {lo:.4f} and {hi:.4f} (bootstrap)")


if __name__ == "__main__":
    main()
