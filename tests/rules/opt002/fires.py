import torch
from torch import nn

from tests.rules.programs import optimized


def module_asked_for_zeros():
    model = nn.Linear(8, 1)

    def step():
        model.zero_grad(set_to_none=False)  # OPT002
        model(torch.ones(4, 8)).mean().backward()

    return step


def a_loop_that_fills_them_one_by_one():
    model, optimizer = optimized(nn.Linear(8, 1), lr=0.01)

    def clear():
        for p in model.parameters():
            if p.grad is not None:
                p.grad.data.zero_()  # OPT002

    def step():
        model(torch.ones(4, 8)).mean().backward()
        optimizer.step()
        clear()

    return step
