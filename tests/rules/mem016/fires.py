import torch
from torch import nn


def kernel_of_squared_distances():
    net = nn.Linear(16, 16)

    def step():
        x, y = net(torch.randn(200, 16)), torch.randn(150, 16)
        gap = x.unsqueeze(1) - y.unsqueeze(0)  # MEM016
        torch.exp(-gap.pow(2).sum(-1)).mean().backward()

    return step


def nearest_code_without_gradients():
    codes, net = torch.randn(256, 16), nn.Linear(16, 16)

    def step():
        z = net(torch.randn(128, 16))
        with torch.no_grad():
            near = ((z[:, None] - codes) ** 2).mean(dim=2).argmin(1)  # MEM016
        (z - codes[near]).square().mean().backward()

    return step


def norms_and_absolute_values_in_a_batch():
    net = nn.Linear(16, 16)

    def step():
        x, y = net(torch.randn(4, 80, 16)), torch.randn(4, 64, 16)
        apart = torch.linalg.vector_norm(x[:, :, None] - y[:, None], dim=-1)  # MEM016
        city = (x[:, :, None] - y[:, None]).abs().sum(dim=-1)  # MEM016
        (apart + city).mean().backward()

    return step
