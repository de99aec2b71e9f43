import torch
from torch import nn

from tests.rules.programs import trained_once


def _saved(model):
    optimizer = torch.optim.AdamW(model.parameters())
    trained_once(model, optimizer, torch.ones(4, 8))
    return optimizer.state_dict()


def loaded_by_a_helper_into_its_own():
    model = nn.Linear(8, 1)

    def resume(state):
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.load_state_dict(state)
        return 3

    assert resume(_saved(model)) == 3
    optimizer = torch.optim.AdamW(model.parameters())  # OPT014

    return lambda: trained_once(model, optimizer, torch.randn(4, 8))
