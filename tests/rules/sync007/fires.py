import torch
from torch import nn

from tests.rules.traces import copying
from tests.timeline.kineto import loop, text


def cuda_method__rehearsal():
    model, table = nn.Linear(512, 1, device="cuda"), torch.randn(64, 512)
    return lambda: model(table.cuda(non_blocking=True)).mean().backward()  # SYNC007


def pageable_in_spite_of_non_blocking__trace():
    return text(loop(4, 1000.0, lambda number, start: copying(start, number, waits=False)))


def copied_into_a_pageable_buffer__trace():
    return text(loop(4, 1000.0, lambda number, start: copying(start, number, "DtoH (Device -> Pageable)", waits=False)))
