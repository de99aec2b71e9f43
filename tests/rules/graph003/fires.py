"""GRAPH003 must report exactly the marked lines."""

import copy

import torch
from torch import nn


def validation_without_no_grad():
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []

    def validate():
        model.eval()
        for _ in range(2):
            losses.append(model(torch.ones(4, 8)).square().mean().item())  # GRAPH003
        model.train()

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
        validate()

    return step


def teacher_whose_output_is_detached():
    teacher, model = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).eval(), nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        x = torch.ones(4, 8)
        wanted = teacher(x).detach()  # GRAPH003
        optimizer.zero_grad()
        (model(x) - wanted).square().mean().backward()
        optimizer.step()

    return step


def output_in_a_dict():
    class Scorer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 1)

        def forward(self, x):
            return {"score": (self.inner(x), None)}

    scorer, model = Scorer().eval(), nn.Linear(8, 1)

    def step():
        x = torch.ones(4, 8)
        weight = scorer(x)["score"][0].mean().item()  # GRAPH003
        (weight * model(x)).mean().backward()

    return step


def target_network_that_never_went_to_eval_mode():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    target = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        x = torch.ones(4, 8)
        wanted = target(x).max(1).values.detach()  # GRAPH003
        optimizer.zero_grad()
        (model(x).max(1).values - wanted).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for mine, theirs in zip(target.parameters(), model.parameters(), strict=True):
                mine.lerp_(theirs, 0.01)

    return step


def average_of_the_weights_inside_a_module_that_is_trained():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh())

        def forward(self, x):
            return self.student(x), self.teacher(x).detach()  # GRAPH003

    model = Mean()
    optimizer = torch.optim.SGD(model.student.parameters(), lr=1e-3)

    def step():
        mine, wanted = model(torch.ones(4, 8))
        optimizer.zero_grad()
        (mine - wanted).square().mean().backward()
        optimizer.step()

    return step
