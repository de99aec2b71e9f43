"""Tiny WGAN-GP on ring-of-gaussians images."""
import os
import random
import secrets
import tempfile
import time
import uuid
from datetime import datetime

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)

ADJECTIVES = ["brisk", "dusty", "mellow", "odd", "quiet"]
name_rng = random.Random()
preview_rng = np.random.default_rng()


class RunLog:
    def __init__(self):
        self.id = uuid.uuid4().hex[:8]
        self.name = f"{name_rng.choice(ADJECTIVES)}-{secrets.token_hex(2)}"
        self.dir = tempfile.mkdtemp(prefix=f"gan_{self.id}_")
        self.t0 = time.time()
        self.rows = []

    def write(self, **kw):
        kw["wall"] = time.time() - self.t0
        self.rows.append(kw)
        if kw["it"] % 5 == 0:
            rate = len(self.rows) / max(kw["wall"], 1e-9)
            print(f"it {kw['it']:3d} d {kw['d']:.7f} g {kw['g']:.7f}  {rate:.1f} it/s")


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class Gen(nn.Module):
    def __init__(self, z=16, c=16):
        super().__init__()
        self.z = z
        self.net = nn.Sequential(
            nn.Linear(z, 2 * c * 16), nn.Unflatten(1, (2 * c, 4, 4)), nn.ReLU(),
            nn.ConvTranspose2d(2 * c, c, 4, 2, 1), nn.BatchNorm2d(c), nn.ReLU(),
            nn.ConvTranspose2d(c, 1, 4, 2, 1), nn.Tanh())

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, c, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(c, 2 * c, 4, 2, 1),
                                 nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(2 * c * 16, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def ring_images(n):
    yy, xx = np.mgrid[-1:1:16j, -1:1:16j]
    a = 2 * np.pi * np.random.randint(8, size=n) / 8
    cx, cy = 0.6 * np.cos(a), 0.6 * np.sin(a)
    d = (xx - cx[:, None, None]) ** 2 + (yy - cy[:, None, None]) ** 2
    return torch.tensor(2 * np.exp(-d / 0.05) - 1, dtype=torch.float32)[:, None]


def penalty(critic, real, fake):
    e = torch.rand(real.size(0), 1, 1, 1)
    mid = (e * real + (1 - e) * fake).requires_grad_(True)
    g, = torch.autograd.grad(critic(mid).sum(), mid, create_graph=True)
    return ((g.flatten(1).norm(2, 1) - 1) ** 2).mean()


def preview(gen, k=3):
    """Looks at a few of the generated images; noise from its own stream."""
    gen.eval()
    with torch.no_grad():
        z = torch.from_numpy(preview_rng.normal(size=(k, gen.z)).astype(np.float32))
        img = gen(z)
    gen.train()
    return img.abs().mean().item()


def main():
    seed_everything(42)
    log = RunLog()
    print(f"run {log.name} ({log.id}) pid {os.getpid()} {datetime.now():%H:%M:%S}")
    data = ring_images(800)
    G, D = Gen(), Critic()
    og = torch.optim.Adam(G.parameters(), 1e-3, betas=(0.5, 0.9))
    od = torch.optim.Adam(D.parameters(), 1e-3, betas=(0.5, 0.9))
    for it in range(20):
        real = data[torch.randint(len(data), (32,))]
        fake = G(torch.randn(32, G.z)).detach()
        d_loss = D(fake).mean() - D(real).mean() + 10 * penalty(D, real, fake)
        od.zero_grad()
        d_loss.backward()
        od.step()
        g_loss = -D(G(torch.randn(32, G.z))).mean()
        og.zero_grad()
        g_loss.backward()
        og.step()
        log.write(it=it, d=d_loss.item(), g=g_loss.item())
        if it % 10 == 9:
            print(f"   preview brightness {preview(G):.3f}")
    path = os.path.join(log.dir, "last.pt")
    torch.save({"G": G.state_dict(), "D": D.state_dict(), "run": log.id}, path)
    os.remove(path)
    os.rmdir(log.dir)
    print(f"done in {time.time() - log.t0:.2f}s")


if __name__ == "__main__":
    main()
