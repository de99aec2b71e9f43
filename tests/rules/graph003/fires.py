"""GRAPH003 must report exactly the marked lines."""

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
