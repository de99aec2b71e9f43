import torch
from torch import nn
from torch.optim import lr_scheduler


def _trained(schedule_of, rates=(1e-4, 1e-3)):
    body, head = nn.Linear(8, 8), nn.Linear(8, 1)
    parts = zip((body, head), rates, strict=True)
    groups = [{"params": part.parameters(), "lr": rate} for part, rate in parts]
    optimizer = torch.optim.SGD(groups, lr=1e-3)
    schedule = schedule_of(optimizer)

    def step():
        optimizer.zero_grad()
        head(body(torch.randn(4, 8))).square().mean().backward()
        optimizer.step()
        schedule.step()

    return step


def warmed_up_by_a_factor():
    return _trained(lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda n: min(1, n / 8)))


def groups_of_one_rate():
    return _trained(lambda it: lr_scheduler.OneCycleLR(it, 1e-3, total_steps=99), (1e-3, 1e-3))


def rates_that_come_together_later():
    def joined(optimizer):
        return lr_scheduler.LambdaLR(optimizer, [lambda n: min(10.0, 1 + n * 3), lambda n: 1.0])

    return _trained(joined)
