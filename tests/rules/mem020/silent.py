import torch
from torch import nn


def on_what_the_step_computes():
    model = nn.Linear(8, 1)

    def step():
        out = model(torch.ones(4, 8))
        out.register_hook(lambda grad: grad * 0.5)
        out.mean().backward()

    return step


def on_a_module_of_the_step():
    model = nn.Linear(8, 8)

    def step():
        head = nn.Linear(8, 1)
        head.register_forward_hook(lambda *given: None)
        head(model(torch.ones(4, 8))).mean().backward()

    return step


def removed_by_the_next_step():
    model, handles = nn.Linear(8, 1), []

    def step():
        while handles:
            handles.pop().remove()
        handles.append(model.register_forward_hook(lambda *given: None))
        model(torch.ones(4, 8)).mean().backward()

    return step


def registered_in_the_first_step():
    model, handles = nn.Linear(8, 1), []

    def step():
        if not handles:
            handles.append(model.register_forward_hook(lambda *given: None))
        model(torch.ones(4, 8)).mean().backward()

    return step


def on_another_module_in_each_report():
    model, steps = nn.ModuleList(nn.Linear(8, 8) for _ in range(9)), []

    def step():
        steps.append(len(steps))
        if len(steps) % 5 == 0:
            model[len(steps) // 5].register_forward_hook(lambda *given: None)
        model[0](torch.ones(4, 8)).mean().backward()

    return step
