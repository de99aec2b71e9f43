import torch
from torch import nn


def torch_autocast_for_cuda():
    model = nn.Linear(8, 1)

    def step():
        with torch.autocast("cuda", enabled=False):
            model(torch.ones(4, 8)).mean()

    return step


def deprecated_class_made_and_never_entered():
    model = nn.Linear(8, 1)
    torch.cuda.amp.autocast()

    def step():
        model(torch.ones(4, 8)).mean()

    return step
