import torch
from torch import nn


def switched_on_in_every_step():
    model = nn.Linear(8, 1)

    def step():
        with torch.autograd.set_detect_anomaly(True):  # NUM009
            model(torch.ones(4, 8)).square().mean().backward()

    return step
