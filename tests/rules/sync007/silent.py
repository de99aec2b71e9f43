"""Near misses: SYNC007 must stay silent on all of these."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.timeline.kineto import call, loop, memcpy, op, product, text


def pinned_rows__rehearsal():
    model, table = nn.Linear(512, 1, device="cuda"), torch.randn(64, 512).pin_memory()

    def step():
        model(table.to("cuda", non_blocking=True)).mean().backward()

    return step


def a_view_of_pinned_memory__rehearsal():
    model, table = nn.Linear(512, 1, device="cuda"), torch.randn(4096, 512).pin_memory()

    def step():
        model(table[64:128].to("cuda", non_blocking=True)).mean().backward()

    return step


def a_batch_of_a_loader_is_its_loaders_affair__rehearsal():
    model = nn.Linear(512, 1, device="cuda")
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 512)), batch_size=64))  # DATA003

    def step():
        (x,) = next(batches)
        model(x.to("cuda", non_blocking=True)).mean().backward()

    return step


def a_small_tensor_is_a_note__rehearsal():
    model, row = nn.Linear(8, 1, device="cuda"), torch.randn(4, 8)

    def step():
        model(row.to("cuda", non_blocking=True)).mean().backward()

    return step


def between_two_places_of_the_device__rehearsal():
    model, row = nn.Linear(512, 1, device="cuda"), torch.randn(64, 512, device="cuda")

    def step():
        model(row.to("cuda", non_blocking=True)).mean().backward()

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


def pinned_memory__trace():
    return text(loop(4, 1000.0, lambda number, start: _copying(start, number, "HtoD (Pinned -> Device)", waits=False)))


def blocking_copy_is_another_rules__trace():
    return text(loop(4, 1000.0, lambda number, start: _copying(start, number)))


def small_enough_to_be_staged_at_once__trace():
    return text(loop(4, 1000.0, lambda number, start: _copying(start, number, waits=False, size=48)))
