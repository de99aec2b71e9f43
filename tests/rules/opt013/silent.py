import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import numbered, trained_once


def _anew(make, every=3, before=lambda model: model):
    model, state = nn.Linear(8, 1), {"taken": 0}

    def step():
        nonlocal model
        if state["taken"] % every == 0:
            model = before(model)
            state["optimizer"] = make(model, state)
        state["taken"] += 1
        trained_once(model, state["optimizer"], torch.randn(4, 8))

    return step


def one_restart():
    return _anew(lambda model, _: torch.optim.Adam(model.parameters()), every=20)


def without_state():
    return _anew(lambda model, _: torch.optim.SGD(model.parameters(), lr=0.1))


def with_a_rate_of_its_own():
    return _anew(
        lambda model, state: torch.optim.Adam(model.parameters(), lr=0.1 / (1 + state["taken"]))
    )


def over_a_new_model_for_each_fold():
    return _anew(
        lambda model, _: torch.optim.Adam(model.parameters()), before=lambda _: nn.Linear(8, 1)
    )


def over_a_copy_of_the_weights():
    return _anew(lambda model, _: torch.optim.Adam(model.parameters()), before=copy.deepcopy)


def after_weights_were_loaded():
    start = nn.Linear(8, 1).state_dict()

    def loaded(model):
        model.load_state_dict(start)
        return model

    return _anew(lambda model, _: torch.optim.Adam(model.parameters()), before=loaded)


def after_weights_were_written_through_data():
    start = torch.randn(1, 8)

    def written(model):
        model.weight.data.copy_(start)
        return model

    return _anew(lambda model, _: torch.optim.Adam(model.parameters()), before=written)


def that_takes_the_state_over():
    def make(model, state):
        optimizer = torch.optim.Adam(model.parameters())
        if "optimizer" in state:
            optimizer.load_state_dict(state["optimizer"].state_dict())
        return optimizer

    return _anew(make)


def with_layers_that_are_unfrozen():
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(8)))
    optimizer = None

    def step(number):
        nonlocal optimizer
        if number % 4 == 0:
            shown = model[-1 - number // 4 :].parameters()
            optimizer = torch.optim.Adam(shown, lr=1e-3)
        trained_once(model, optimizer, torch.randn(4, 8))

    return numbered(step, 0)


def for_each_task_of_several_epochs():
    model = nn.Linear(8, 1)
    loader = DataLoader(TensorDataset(torch.randn(8, 8)), batch_size=4)

    def tasks():
        while True:
            optimizer = torch.optim.Adam(model.parameters())
            for _ in range(2):
                for (x,) in loader:
                    trained_once(model, optimizer, x)
                    yield

    return tasks().__next__


def two_optimizers_of_a_gan_at_one_line():
    nets = nn.Linear(8, 8), nn.Linear(8, 1)
    one, two = (torch.optim.Adam(each.parameters()) for each in nets)

    def step():
        trained_once(nets[0], one, torch.randn(4, 8))
        trained_once(nets[1], two, torch.randn(4, 8))

    return step


def for_each_task_of_several_epochs_without_a_loader():
    model = nn.Linear(8, 1)

    def tasks():
        while True:
            optimizer, data = torch.optim.Adam(model.parameters()), torch.randn(8, 8)
            for _ in range(2):
                for x in data.split(4):
                    trained_once(model, optimizer, x)
                    yield

    return tasks().__next__
