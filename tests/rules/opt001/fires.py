import torch
from torch import nn

from tests.rules.programs import trained_once
from tests.rules.traces import operator, optimizer, times, traced


def eighty_parameters_one_by_one__trace():
    adding = times(80, operator("aten::add_", 2.0, host_us=8.0))
    return traced(operator("aten::mm", 100.0), optimizer("SGD", adding))


def _step(model, optimizer):
    x = torch.ones(4, 8, device="cuda")
    return lambda: trained_once(model, optimizer, x)


def fused_switched_off_and_foreach_with_it__rehearsal():
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(10))).cuda()
    return _step(model, torch.optim.Adam(model.parameters(), lr=1e-3, fused=False))  # OPT001
