"""Coordinate networks: (x, y) -> intensity."""
import math

import torch
from torch import nn


class FourierFeatures(nn.Module):
    def __init__(self, in_dim: int, n_freq: int, sigma: float):
        super().__init__()
        self.register_buffer("B", sigma * torch.randn(in_dim, n_freq))

    def forward(self, xy):
        proj = 2.0 * math.pi * xy @ self.B
        return torch.cat([proj.sin(), proj.cos()], dim=-1)


class FourierField(nn.Module):
    def __init__(self, n_freq=64, hidden=96, depth=3, sigma=3.0):
        super().__init__()
        self.encode = FourierFeatures(2, n_freq, sigma)
        layers, width = [], 2 * n_freq
        for _ in range(depth):
            layers += [nn.Linear(width, hidden), nn.GELU()]
            width = hidden
        layers.append(nn.Linear(width, 1))
        self.body = nn.Sequential(*layers)

    def forward(self, xy):
        return self.body(self.encode(xy)).squeeze(-1)


def psnr(mse: float) -> float:
    return -10.0 * math.log10(max(mse, 1e-12))
