"""Fit a small grey image with a Fourier-feature MLP."""
import argparse
import random

import numpy as np
import torch
import torch.nn.functional as F

from fields import FourierField, psnr


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=1234)
    p.add_argument("--size", type=int, default=48)
    p.add_argument("--points", type=int, default=512, help="pixels per step")
    p.add_argument("--steps", type=int, default=30)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--n-freq", type=int, default=64)
    p.add_argument("--sigma", type=float, default=3.0)
    return p.parse_args()


def make_image(size):
    """Rings, a slanted bar and some sensor noise."""
    axis = torch.linspace(-1, 1, size)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    img = 0.5 + 0.5 * torch.cos(12.0 * (xx ** 2 + yy ** 2))
    img = torch.where((xx - 0.4 * yy).abs() < 0.08, torch.ones_like(img), img)
    img = img + 0.02 * torch.randn_like(img)
    coords = torch.stack([xx, yy], dim=-1).reshape(-1, 2)
    return coords, img.reshape(-1)


class Trainer:
    def __init__(self, net, args):
        seed_everything(args.seed)
        torch.use_deterministic_algorithms(True)
        self.net = net
        self.args = args
        self.coords, self.target = make_image(args.size)
        self.opt = torch.optim.Adam(net.parameters(), lr=args.lr)
        self.history = []

    def sample(self):
        idx = torch.randint(0, len(self.coords), (self.args.points,))
        return self.coords[idx], self.target[idx]

    def step(self):
        xy, want = self.sample()
        loss = F.mse_loss(self.net(xy), want)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        return F.mse_loss(self.net(self.coords), self.target).item()

    def fit(self):
        for it in range(self.args.steps):
            self.history.append(self.step())
            if it % 5 == 0 or it + 1 == self.args.steps:
                print(f"step {it:3d}  mse {self.history[-1]:.8f}")
        full = self.evaluate()
        print(f"full image: mse {full:.8f}  psnr {psnr(full):.3f} dB")


def main():
    args = parse_args()
    torch.set_num_threads(1)
    net = FourierField(n_freq=args.n_freq, sigma=args.sigma)
    n_params = sum(p.numel() for p in net.parameters())
    print(f"{type(net).__name__}: {n_params} parameters, seed {args.seed}")
    Trainer(net, args).fit()


if __name__ == "__main__":
    main()
