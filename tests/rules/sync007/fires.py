"""SYNC007 must report exactly the marked lines."""

import torch
from torch import nn

from tests.timeline.kineto import call, loop, memcpy, op, product, text


def cuda_method__rehearsal():
    model, table = nn.Linear(512, 1, device="cuda"), torch.randn(64, 512)

    def step():
        model(table.cuda(non_blocking=True)).mean().backward()  # SYNC007

    return step


def _copying(start, number, kind="HtoD (Pageable -> Device)", waits=True, size=1 << 20):
    """A copy that begins 400 us into the step, and the synchronisation that makes it blocking."""
    first = 100 * number
    copied = [
        *product(start + 10, first + 1),
        op("aten::to", start + 400, 200),
        op("aten::copy_", start + 405, 190),
        call("cudaMemcpyAsync", start + 410, 100, first + 2),
        memcpy(kind, start + 420, 80, first + 2, size),
    ]
    return [*copied, call("cudaStreamSynchronize", start + 512, 20, first + 3)] if waits else copied


def pageable_in_spite_of_non_blocking__trace():
    return text(loop(4, 1000.0, lambda number, start: _copying(start, number, waits=False)))


def copied_into_a_pageable_buffer__trace():
    return text(loop(4, 1000.0, lambda number, start: _copying(start, number, "DtoH (Device -> Pageable)", waits=False)))
