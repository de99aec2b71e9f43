"""KERN006 must report the marked lines, and be a warning on these traces."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.timeline.programs import Program


def rolled_row_by_row():
    model, shifts = nn.Linear(32, 32), list(range(24))

    def step():
        x = torch.randn(24, 32)
        out = torch.empty_like(x)
        for i in shifts:
            out[i] = torch.roll(x[i], i)  # KERN006
        (model(x) - out).square().mean().backward()

    return step


def a_loss_summed_over_samples():
    model, y = nn.Linear(8, 4), torch.zeros(16, dtype=torch.long)

    def step():
        out = model(torch.ones(16, 8))
        loss = 0.0
        for i in range(len(out)):
            loss = loss + F.cross_entropy(out[i : i + 1], y[i : i + 1])  # KERN006
        (loss / len(out)).backward()

    return step


def distances_within_each_sample():
    model = nn.Linear(3, 3)

    def step():
        x, total = torch.randn(12, 5, 3), 0.0
        out = model(x)
        for i in range(12):
            d = torch.cdist(out[i], x[i])  # KERN006
            total = total + d.min(0).values.mean() + d.min(1).values.mean()
        (total / 12).backward()

    return step


def columns_in_a_list():
    model = nn.Linear(8, 12)

    def step():
        out = model(torch.ones(16, 8))
        columns = []
        for column in range(out.shape[1]):
            columns.append(out[:, column] * column)  # KERN006
        torch.stack(columns, dim=1).mean().backward()

    return step


def rows_on_the_gpu__rehearsal():
    model, x = nn.Linear(8, 8).cuda(), torch.randn(32, 8, device="cuda")

    def step():
        out = model(x)
        best = []
        for row in out:
            best.append(row.max())  # KERN006
        torch.stack(best).mean().backward()

    return step


def row_after_row__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 100.0)
            for _ in range(30):
                program.operator("aten::select")
                program.operator("aten::mul", 2.0)
                program.operator("aten::copy_", 2.0)
    return program.trace()


def index_inside_a_function__trace():
    program = Program()
    for _ in range(3):
        with program.step(), program.inside("Gather.forward"):
            for _ in range(12):
                program.operator("aten::index", 3.0, host_us=30.0)
    return program.trace()
