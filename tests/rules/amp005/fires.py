import torch
from torch import nn

from tests.rules.programs import optimized


def by_its_full_name():
    model = nn.Linear(8, 1)

    def step():
        with torch.cuda.amp.autocast(enabled=True):  # AMP005
            model(torch.ones(4, 8)).mean()

    return step


def scaler_made_before_the_step():
    model, optimizer = optimized(nn.Linear(8, 1), lr=0.1)
    scaler = torch.cuda.amp.GradScaler()  # AMP005

    def step():
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        scaler.step(optimizer)
        scaler.update()

    return step
