import torch
from torch import nn

from tests.rules.programs import scored


def mask_filled_with_a_number__rehearsal():
    return scored(lambda out: out.masked_fill(out > 9, 0.0).mean())


def rows_by_index_not_by_mask__rehearsal():
    model, rows = nn.Linear(8, 1, device="cuda"), torch.tensor([0, 2], device="cuda")
    return lambda: model(torch.ones(4, 8, device="cuda"))[rows].mean().backward()


def three_argument_where__rehearsal():
    return scored(lambda out: torch.where(out > 0, out, -out).mean())


def mask_of_host_data_before_the_move__rehearsal():
    model, labels = nn.Linear(8, 1, device="cuda"), torch.tensor([0, 1, 2, 1])

    def step():
        rows = (labels == 1).nonzero().squeeze(1)
        model(torch.ones(len(rows), 8, device="cuda")).mean().backward()

    return step
