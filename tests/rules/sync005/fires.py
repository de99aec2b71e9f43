import torch
from torch import nn

from tests.rules.programs import looked_at


def masked_select_of_errors__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        out = model(torch.ones(4, 8, device="cuda"))
        torch.masked_select(out, out > -9).mean().backward()  # SYNC005

    return step


def distinct_predictions__rehearsal():
    seen = {}
    return looked_at(lambda out: seen.update(classes=torch.unique(out.argmax(1))), 3)  # SYNC005


def counted_predictions__rehearsal():
    seen = {}
    return looked_at(lambda out: seen.update(counts=torch.bincount(out.argmax(1))), 3)  # SYNC005
