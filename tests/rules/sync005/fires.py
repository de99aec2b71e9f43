import torch

from tests.rules.programs import looked_at, scored


def masked_select_of_errors__rehearsal():
    return scored(lambda out: torch.masked_select(out, out > -9).mean())  # SYNC005


def distinct_predictions__rehearsal():
    seen = {}
    return looked_at(lambda out: seen.update(classes=torch.unique(out.argmax(1))), 3)  # SYNC005


def counted_predictions__rehearsal():
    seen = {}
    return looked_at(lambda out: seen.update(counts=torch.bincount(out.argmax(1))), 3)  # SYNC005
