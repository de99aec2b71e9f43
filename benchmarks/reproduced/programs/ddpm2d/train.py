import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from streams import Streams

torch.set_num_threads(1)


@dataclass
class DiffusionConfig:
    T: int = 200
    hidden: int = 96
    blocks: int = 3
    batch: int = 128
    iters: int = 40
    lr: float = 1e-3
    ema: float = 0.98
    seed: int = 0


def cosine_alphas(T, s=0.008):
    t = torch.linspace(0, 1, T + 1, dtype=torch.float64)
    f = torch.cos((t + s) / (1 + s) * math.pi / 2) ** 2
    beta = (1 - f[1:] / f[:-1]).clamp(max=0.999)
    return torch.cumprod(1 - beta, 0).float()


def two_spirals(n, rng):
    r = np.sqrt(rng.random(n)) * 3 * np.pi
    sign = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    xy = np.stack([sign * r * np.cos(r), sign * r * np.sin(r)], 1) / 5.0
    return torch.tensor(xy + 0.04 * rng.normal(size=(n, 2)), dtype=torch.float32)


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("freq", torch.exp(torch.linspace(0, -math.log(1e4), dim // 2)))
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        a = t.float()[:, None] * self.freq
        return self.mlp(torch.cat([a.sin(), a.cos()], -1))


class ResBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.fc1, self.fc2, self.film = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 2 * d)

    def forward(self, x, e):
        scale, shift = self.film(e).chunk(2, -1)
        return x + self.fc2(F.silu(self.fc1(self.norm(x) * (1 + scale) + shift)))


class EpsNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d = cfg.hidden
        self.time, self.inp, self.out = TimeEmbedding(d), nn.Linear(2, d), nn.Linear(d, 2)
        self.blocks = nn.ModuleList(ResBlock(d) for _ in range(cfg.blocks))

    def forward(self, x, t):
        e, h = self.time(t), self.inp(x)
        for b in self.blocks:
            h = b(h, e)
        return self.out(h)


class Diffusion:
    def __init__(self, cfg, streams):
        self.cfg, self.streams = cfg, streams
        self.abar = cosine_alphas(cfg.T)

    def loss(self, net, x0):
        t = torch.randint(self.cfg.T, (x0.size(0),))
        eps = self.streams.randn_like("noise", x0)
        a = self.abar[t][:, None]
        xt = a.sqrt() * x0 + (1 - a).sqrt() * eps
        return F.mse_loss(net(xt, t), eps)


def main():
    cfg = DiffusionConfig()
    torch.manual_seed(cfg.seed)
    data = two_spirals(4000, np.random.default_rng(cfg.seed))
    net = EpsNet(cfg)
    shadow = {k: v.detach().clone() for k, v in net.named_parameters()}
    diff = Diffusion(cfg, Streams(cfg.seed))
    opt = torch.optim.AdamW(net.parameters(), lr=cfg.lr)
    for it in range(cfg.iters):
        loss = diff.loss(net, data[torch.randint(len(data), (cfg.batch,))])
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for k, v in net.named_parameters():
                shadow[k].lerp_(v, 1 - cfg.ema)
        print(f"iter {it:03d}: mse {loss.item():.7f}")
    print("ema norm %.6f" % sum(v.pow(2).sum().item() for v in shadow.values()) ** 0.5)


main()
