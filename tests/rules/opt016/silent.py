import itertools

import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR

from tests.rules.programs import optimized, trained_once


def stepped_with_each_micro_batch():
    model, optimizer = optimized(nn.Linear(8, 1), torch.optim.Adam)
    scheduler, steps = ExponentialLR(optimizer, gamma=0.9), itertools.count(1)

    def step():
        model(torch.randn(4, 8)).mean().backward()
        if next(steps) % 8 == 0:
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()

    return step


def two_optimizers_in_turn():
    model = nn.Linear(8, 1)
    both = itertools.cycle([torch.optim.Adam(model.parameters()), torch.optim.SGD(model.parameters())])
    optimizers = [next(both), next(both)]
    schedulers = [ExponentialLR(each, gamma=0.9) for each in optimizers]
    steps = itertools.count()

    def step():
        turn = next(steps) % 2
        trained_once(model, optimizers[turn], torch.randn(4, 8))
        schedulers[turn].step()

    return step
