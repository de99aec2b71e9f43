"""Near misses: SYNC007 must stay silent on all of these."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


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
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 512)), batch_size=64))

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
