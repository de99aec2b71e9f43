import torch
from torch import nn

from tests.rules.programs import trained_with
from tests.rules.traces import operator, optimizer, times, traced


def _steps(name, count, **more):
    adding = times(count, operator(name, 5.0, **more))
    return traced(operator("aten::mm", 100.0), optimizer("AdamW", adding))


def foreach_in_many_chunks__trace():
    return _steps("aten::_foreach_add_", 12, kernels=6)


def fused_in_many_chunks__trace():
    return _steps("aten::_fused_adamw_", 10, kernels=6)


def a_model_of_four_parameters__trace():
    return _steps("aten::add_", 12)


def the_same_operators_outside_of_the_optimizer__trace():
    adding = times(80, operator("aten::add_", 5.0))
    return traced(adding, optimizer("SGD", operator("aten::_foreach_add_", 5.0)))


def _rehearsed(layers=10, kind=torch.optim.AdamW, **given):
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers))).cuda()
    x = torch.ones(4, 8, device="cuda")
    return trained_with(kind(model.parameters(), lr=1e-3, **given), lambda: model(x).square().mean())


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
