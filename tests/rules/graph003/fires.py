import copy

import torch
from torch import nn

from tests.rules.programs import optimized, trained_by, trained_once, trained_with


def validation_without_no_grad():
    model, optimizer = optimized(nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 1)))
    losses = []

    def validate():
        model.eval()
        for _ in range(2):
            losses.append(model(torch.ones(4, 8)).square().mean().item())  # GRAPH003
        model.train()

    def step():
        trained_once(model, optimizer, torch.ones(4, 8))
        validate()

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


def average_of_the_weights_inside_a_module_that_is_trained():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh())

        def forward(self, x):
            return self.student(x), self.teacher(x).detach()  # GRAPH003

    model = Mean()

    def loss():
        mine, wanted = model(torch.ones(4, 8))
        return (mine - wanted).square().mean()

    return trained_with(torch.optim.SGD(model.student.parameters(), lr=1e-3), loss)


def a_teacher_whose_gradients_nobody_uses():
    teacher, model = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).eval(), nn.Linear(8, 8)

    def loss():
        x = torch.ones(4, 8)
        wanted = teacher(x)  # GRAPH003
        return (model(x) - wanted).square().mean()

    return trained_by(model, loss)


def an_average_of_weights_whose_gradients_pile_up():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    target = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def step():
        x = torch.randn(4, 8)
        wanted = target(x + 1)  # GRAPH003
        optimizer.zero_grad()
        (model(x) - wanted).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(target.parameters()), list(model.parameters()), 0.5)

    return step


def the_models_own_guess():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def loss():
        x = torch.randn(4, 8)
        guess = model(x).argmax(-1)  # GRAPH003
        return nn.functional.cross_entropy(model(x * 0.5), guess)

    return trained_by(model, loss)


def a_teacher_in_stages_through_the_students_lines():
    def net(width):
        return nn.ModuleList([nn.Linear(8, width), nn.Linear(width, 8)])

    teacher, student = net(32), net(4)

    def through(stages, x):
        return stages[1](stages[0](x).relu())

    def loss():
        x = torch.randn(4, 8)
        wanted = through(teacher, x)  # GRAPH003
        return (through(student, x) - wanted.detach()).square().mean()

    return trained_by(student, loss)


def a_frozen_encoder_whose_method_is_called():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())

        def encode(self, x):
            return self.body(x)  # GRAPH003

    encoder, head = Encoder().eval(), nn.Linear(16, 1)
    opt = torch.optim.SGD(head.parameters(), lr=0.1)

    def step():
        features = encoder.encode(torch.randn(4, 8)).detach()
        trained_once(head, opt, features)

    return step
