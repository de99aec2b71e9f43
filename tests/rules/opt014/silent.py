import torch
from torch import nn

from tests.rules.programs import trained_once


def _saved(model):
    optimizer = torch.optim.AdamW(model.parameters())
    trained_once(model, optimizer, torch.ones(4, 8))
    return optimizer.state_dict()


def _resumed(make):
    model = nn.Linear(8, 1)
    state = _saved(model)
    loaded = torch.optim.AdamW(model.parameters())
    loaded.load_state_dict(state)
    model, optimizer = make(model, state)
    return lambda: trained_once(model, optimizer, torch.randn(4, 8))


def loaded_again_into_the_one_that_steps():
    def make(model, state):
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.load_state_dict(state)
        return model, optimizer

    return _resumed(make)


def another_class_for_the_last_epochs():
    return _resumed(lambda model, _: (model, torch.optim.SGD(model.parameters(), lr=0.1)))


def another_model_is_trained():
    def make(model, _):
        other = nn.Linear(8, 1)
        return other, torch.optim.AdamW(other.parameters())

    return _resumed(make)


def a_layer_was_added():
    def make(model, _):
        longer = nn.Sequential(model, nn.Linear(1, 1))
        return longer, torch.optim.AdamW(longer.parameters())

    return _resumed(make)


def the_loaded_one_steps():
    model = nn.Linear(8, 1)
    state = _saved(model)
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.load_state_dict(state)
    return lambda: trained_once(model, optimizer, torch.randn(4, 8))


def a_state_of_a_first_step_that_was_never_taken():
    def make(model, _):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        optimizer.load_state_dict(optimizer.state_dict())
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    return _resumed(make)
