import torch
from torch import nn

PARTS = 4


def _trained():
    model = nn.Linear(8, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def stepped_after_each_backward():
    model, optimizer = _trained()

    def step():
        for part in torch.randn(32, 8).chunk(PARTS):
            optimizer.zero_grad()
            model(part).square().mean().backward()
            optimizer.step()

    return step


def gradients_of_each_task_copied_before_they_are_cleared():
    model, optimizer = _trained()

    def step():
        sums = [torch.zeros_like(each) for each in model.parameters()]
        for part in torch.randn(32, 8).chunk(PARTS):
            optimizer.zero_grad()
            model(part).square().mean().backward()
            for one, parameter in zip(sums, model.parameters(), strict=True):
                one += parameter.grad.clamp(-1, 1)
        for one, parameter in zip(sums, model.parameters(), strict=True):
            parameter.grad = one / PARTS
        optimizer.step()

    return step


def cleared_before_and_after_the_window():
    model, optimizer = _trained()

    def step():
        optimizer.zero_grad()
        for part in torch.randn(32, 8).chunk(PARTS):
            (model(part).square().mean() / PARTS).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def two_networks_in_turn():
    one, two = nn.Linear(8, 8), nn.Linear(8, 1)
    first = torch.optim.SGD(one.parameters(), lr=0.1)
    second = torch.optim.SGD(two.parameters(), lr=0.1)

    def step():
        for optimizer in (second, first):
            first.zero_grad()
            second.zero_grad()
            two(one(torch.randn(4, 8))).square().mean().backward()
            optimizer.step()

    return step
