"""SYNC007 must report exactly the marked lines."""

import torch
from torch import nn


def pageable_rows__rehearsal():
    model, table = nn.Linear(512, 1, device="cuda"), torch.randn(4096, 512)

    def step():
        rows = table[torch.randint(0, 4096, (64,))]
        model(rows.to("cuda", non_blocking=True)).mean().backward()  # SYNC007

    return step


def cuda_method__rehearsal():
    model, table = nn.Linear(512, 1, device="cuda"), torch.randn(64, 512)

    def step():
        model(table.cuda(non_blocking=True)).mean().backward()  # SYNC007

    return step
