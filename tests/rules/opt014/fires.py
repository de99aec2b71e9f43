import torch
from torch import nn

from tests.rules.opt014.silent import _saved
from tests.rules.programs import trained_once


def loaded_by_a_helper_into_its_own():
    model = nn.Linear(8, 1)

    def resume(state):
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.load_state_dict(state)
        return 3

    assert resume(_saved(model)) == 3
    optimizer = torch.optim.AdamW(model.parameters())  # OPT014

    return lambda: trained_once(model, optimizer, torch.randn(4, 8))
