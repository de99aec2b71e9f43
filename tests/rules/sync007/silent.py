import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.traces import copying
from tests.timeline.kineto import loop, text


def pinned_rows__rehearsal():
    model, table = nn.Linear(512, 1, device="cuda"), torch.randn(64, 512).pin_memory()
    return lambda: model(table.to("cuda", non_blocking=True)).mean().backward()


def a_view_of_pinned_memory__rehearsal():
    model, table = nn.Linear(512, 1, device="cuda"), torch.randn(4096, 512).pin_memory()
    return lambda: model(table[64:128].to("cuda", non_blocking=True)).mean().backward()


def a_batch_of_a_loader_is_its_loaders_affair__rehearsal():
    model = nn.Linear(512, 1, device="cuda")
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 512)), batch_size=64))  # DATA003

    def step():
        (x,) = next(batches)
        model(x.to("cuda", non_blocking=True)).mean().backward()

    return step


def a_small_tensor_is_a_note__rehearsal():
    model, row = nn.Linear(8, 1, device="cuda"), torch.randn(4, 8)
    return lambda: model(row.to("cuda", non_blocking=True)).mean().backward()


def between_two_places_of_the_device__rehearsal():
    model, row = nn.Linear(512, 1, device="cuda"), torch.randn(64, 512, device="cuda")
    return lambda: model(row.to("cuda", non_blocking=True)).mean().backward()


def pinned_memory__trace():
    return text(loop(4, 1000.0, lambda number, start: copying(start, number, "HtoD (Pinned -> Device)", waits=False)))


def blocking_copy_is_another_rules__trace():
    return text(loop(4, 1000.0, lambda number, start: copying(start, number)))


def small_enough_to_be_staged_at_once__trace():
    return text(loop(4, 1000.0, lambda number, start: copying(start, number, waits=False, size=48)))
