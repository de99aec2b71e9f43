import torch
from torch import nn
from torch.nn import functional as F


def losses_added_up_from_zero():
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.Tanh(), nn.Flatten(), nn.LazyLinear(4))
    model(torch.ones(1, 3, 24, 24))

    def step():
        model.zero_grad()
        total = torch.zeros(())
        for _ in range(4):
            images, labels = torch.randn(16, 3, 24, 24), torch.randint(4, (16,))
            total = total + F.cross_entropy(model(images), labels) / 4
        total.backward()  # GRAPH008

    return step


def stacked_losses_of_several_tasks():
    model = nn.Sequential(nn.Linear(8, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 1))

    def step():
        model.zero_grad()
        losses = [model(torch.randn(128, 8)).square().mean() for _ in range(5)]
        torch.stack(losses).mean().backward()  # GRAPH008

    return step
