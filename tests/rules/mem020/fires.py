import torch
from torch import nn


def gradients_of_a_parameter_scaled_in_each_step():
    model = nn.Linear(8, 1)

    def step():
        model.weight.register_hook(lambda grad: grad * 0.5)  # MEM020
        model(torch.ones(4, 8)).mean().backward()

    return step


def features_tapped_on_every_other_step():
    model, steps = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)), []

    def step():
        steps.append(len(steps))
        if len(steps) % 2:
            for layer in model:
                layer.register_forward_pre_hook(lambda *given: None)  # MEM020
        model(torch.ones(4, 8)).mean().backward()

    return step


def dead_units_counted_in_each_report():
    model, steps = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)), []

    def report():
        dead = []
        model[1].register_forward_hook(lambda *given: dead.append(given[-1] == 0))  # MEM020
        model(torch.ones(4, 8))

    def step():
        steps.append(len(steps))
        model(torch.ones(4, 8)).mean().backward()
        if len(steps) % 5 == 0:
            report()

    return step
