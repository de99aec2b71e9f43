"""Near misses: OPT001 must stay silent, or a note, on all of these."""

import torch
from torch import nn

from tests.timeline.programs import Program


def _steps(operator, times, **more):
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 100.0)
            with program.optimizer("AdamW"):
                for _ in range(times):
                    program.operator(operator, 5.0, **more)
    return program.trace()


def foreach_in_many_chunks__trace():
    return _steps("aten::_foreach_add_", 12, kernels=6)


def fused_in_many_chunks__trace():
    return _steps("aten::_fused_adamw_", 10, kernels=6)


def a_model_of_four_parameters__trace():
    return _steps("aten::add_", 12)


def the_same_operators_outside_of_the_optimizer__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(80):
                program.operator("aten::add_", 5.0)
            with program.optimizer("SGD"):
                program.operator("aten::_foreach_add_", 5.0)
    return program.trace()


def _rehearsed(layers=10, kind=torch.optim.AdamW, **given):
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers))).cuda()
    optimizer = kind(model.parameters(), lr=1e-3, **given)
    x = torch.ones(4, 8, device="cuda")

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def nothing_said_about_it__rehearsal():
    return _rehearsed()


def fused_chosen_and_foreach_not__rehearsal():
    return _rehearsed(fused=True, foreach=False)


def two_parameters_one_by_one__rehearsal():
    return _rehearsed(layers=1, foreach=False)


def a_written_optimizer_that_loops__rehearsal():
    class Plain(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr, "foreach": False})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for each in group["params"]:
                    for _ in range(4):
                        each.add_(each.grad, alpha=-group["lr"])

    return _rehearsed(kind=Plain)
