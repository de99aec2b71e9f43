"""SYNC006 must report exactly the marked lines."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


def rows_of_a_host_table__rehearsal():
    model, table = nn.Linear(8, 1, device="cuda"), torch.randn(4096, 8)

    def step():
        rows = table[torch.randint(0, 4096, (64,))]
        model(rows.to("cuda")).mean().backward()  # SYNC006

    return step


def pinned_but_without_non_blocking__rehearsal():
    model, rows = nn.Linear(8, 1, device="cuda"), torch.randn(64, 8).pin_memory()

    def step():
        model(rows.cuda()).mean().backward()  # SYNC006

    return step


def copied_into_a_buffer__rehearsal():
    model, buffer = nn.Linear(8, 1, device="cuda"), torch.empty(64, 8, device="cuda")
    host = torch.randn(64, 8)

    def step():
        host.add_(0.01)
        buffer.copy_(host)  # SYNC006
        model(buffer).mean().backward()

    return step


def a_transformed_batch_is_no_longer_the_loaders__rehearsal():
    model = nn.Linear(8, 1, device="cuda")
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 8)), batch_size=4, pin_memory=True))

    def step():
        (x,) = next(batches)
        x = x / 255
        x = x.to("cuda", non_blocking=False)  # SYNC006
        model(x).mean().backward()

    return step
