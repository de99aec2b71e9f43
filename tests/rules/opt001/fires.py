"""OPT001 must be a warning on these traces, and at the marked lines of these rehearsals."""

import torch
from torch import nn

from tests.timeline.programs import Program


def eighty_parameters_one_by_one__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 100.0)
            with program.optimizer("SGD"):
                for _ in range(80):
                    program.operator("aten::add_", 2.0, host_us=8.0)
    return program.trace()


def _step(model, optimizer):
    x = torch.ones(4, 8, device="cuda")

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def foreach_switched_off__rehearsal():
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(10))).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)  # OPT001
    return _step(model, optimizer)


def fused_switched_off_and_foreach_with_it__rehearsal():
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(10))).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=False)  # OPT001
    return _step(model, optimizer)
