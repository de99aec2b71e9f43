"""DDPM on a two-dimensional spiral."""
import copy
import math
from dataclasses import dataclass, field

import torch
from torch import nn

from diffusion import NoiseSource, Schedule


@dataclass
class Optim:
    lr: float = 2e-3
    batch: int = 128
    steps: int = 36
    ema: float = 0.95


@dataclass
class Experiment:
    seed: int = 31
    n_points: int = 2000
    width: int = 64
    optim: Optim = field(default_factory=Optim)


def spiral(n, seed):
    g = torch.Generator().manual_seed(seed)
    u = torch.rand(n, generator=g).sqrt()
    ang = u * 3 * math.pi
    xy = torch.stack([ang.cos() * u, ang.sin() * u], dim=-1)
    return 2 * xy + 0.03 * torch.randn(n, 2, generator=g)


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("freq", torch.exp(-math.log(1000) * torch.arange(dim // 2) / (dim // 2)))

    def forward(self, t):
        a = t[:, None].float() * self.freq
        return torch.cat([a.sin(), a.cos()], -1)


class Denoiser(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.time = nn.Sequential(TimeEmbedding(32), nn.Linear(32, width), nn.SiLU())
        self.inp = nn.Linear(2, width)
        self.mid = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        h, e = self.inp(x), self.time(t)
        for layer in self.mid:
            h = h + torch.nn.functional.silu(layer(h + e))
        return self.out(h)


class Runner:
    def __init__(self, exp: Experiment):
        torch.manual_seed(exp.seed)
        self.exp = exp
        self.x = spiral(exp.n_points, exp.seed)
        self.net = Denoiser(exp.width)
        self.shadow = copy.deepcopy(self.net)
        self.noise = NoiseSource(Schedule())
        self.opt = torch.optim.Adam(self.net.parameters(), lr=exp.optim.lr)

    def _update_ema(self):
        with torch.no_grad():
            for s, p in zip(self.shadow.parameters(), self.net.parameters()):
                s.lerp_(p, 1 - self.exp.optim.ema)

    def one_step(self):
        rows = torch.randint(len(self.x), (self.exp.optim.batch,))
        xt, t, eps = self.noise.corrupt(self.x[rows])
        loss = (self.net(xt, t) - eps).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self._update_ema()
        return loss.item()

    def run(self):
        for k in range(self.exp.optim.steps):
            value = self.one_step()
            if k % 6 == 0:
                print(f"{k:4d} eps-mse {value:.8f}")
        norm = sum(p.pow(2).sum() for p in self.shadow.parameters()).sqrt().item()
        print(f"ema weight norm {norm:.8f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    Runner(Experiment()).run()
