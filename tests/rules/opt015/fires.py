import itertools

import torch
from torch.utils.data import DataLoader, TensorDataset

LOADER = DataLoader(TensorDataset(torch.rand(40, 8)), batch_size=4)


def _trained():
    model = torch.nn.Linear(8, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def left_for_the_next_epoch():
    model, optimizer = _trained()

    def step():
        for number, (x,) in enumerate(LOADER):
            model(x).square().sum().backward()
            if (number + 1) % 4 == 0:  # OPT015
                optimizer.step()
                optimizer.zero_grad()

    return step


def left_of_six_which_are_all_windows_but_the_first():
    model, optimizer = _trained()
    loader = DataLoader(TensorDataset(torch.rand(24, 8)), batch_size=4)

    def step():
        for number, (x,) in enumerate(loader):
            (model(x).square().mean() / 4).backward()
            if number % 4 == 3:  # OPT015
                optimizer.step()
                model.zero_grad()

    return step


def stepped_in_a_function():
    model, optimizer = _trained()

    def update():
        optimizer.step()  # OPT015
        optimizer.zero_grad()

    def step():
        for number, (x,) in enumerate(LOADER):
            (model(x).square().mean() / 4).backward()
            if number % 4 == 3:
                update()

    return step


def divided_on_a_line_of_its_own__note():
    model, optimizer = _trained()
    loader = DataLoader(TensorDataset(torch.rand(40, 8)), batch_size=4)

    def step():
        for number, (x,) in enumerate(loader):
            loss = model(x).square().mean() / 4  # OPT015
            loss.backward()
            if number % 4 == 3 or number == 9:
                optimizer.step()
                optimizer.zero_grad()

    return step


def windows_fetched_before_the_gradients_are_cleared__note():
    model, optimizer = _trained()

    def windows():
        while True:
            batches = iter(LOADER)
            while window := list(itertools.islice(batches, 4)):
                yield window

    stream = windows()

    def step():
        window = next(stream)
        optimizer.zero_grad()
        for (x,) in window:
            (model(x).square().mean() / 4).backward()  # OPT015
        optimizer.step()

    return step
