import itertools

import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.opt015.fires import LOADER, _trained


def _accumulating(divide=lambda number: 4, ends=(3, 7), begin=lambda model: None):
    model, optimizer = _trained()

    def step():
        begin(model)
        for number, (x,) in enumerate(LOADER):
            (model(x).square().mean() / divide(number)).backward()
            if number in ends:
                optimizer.step()
                optimizer.zero_grad()

    return step


def a_counter_that_goes_on__no_note():
    model, optimizer = _trained()
    count = itertools.count(1)

    def step():
        for (x,) in LOADER:
            (model(x).square().mean() / 4).backward()
            if next(count) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()

    return step


def divided_by_the_window_itself__no_note():
    return _accumulating(lambda number: 4 if number < 8 else 2, (3, 7, 9))


def cleared_before_each_epoch__no_note():
    return _accumulating(begin=lambda model: model.zero_grad())


def divided_afterwards__no_note():
    model, optimizer = _trained()

    def step():
        for number, (x,) in enumerate(LOADER):
            model(x).square().mean().backward()
            if number % 4 == 3 or number == 9:
                for each in model.parameters():
                    each.grad /= 4 if number < 9 else 2
                optimizer.step()
                optimizer.zero_grad()

    return step


def beside_a_short_loader__no_note():
    model, optimizer = _trained()
    short = DataLoader(TensorDataset(torch.rand(12, 8)), batch_size=4)

    def again():
        while True:
            yield from short

    others = again()

    def step():
        for number, (x,) in enumerate(LOADER):
            (model(x).square().mean() / 5 + model(next(others)[0]).mean() / 5).backward()
            if number % 5 == 4:
                optimizer.step()
                optimizer.zero_grad()

    return step


def a_step_with_each_batch__no_note():
    return _accumulating(lambda number: 1, range(10))


def a_step_taken_early__no_note():
    return _accumulating(ends=(3, 5, 9))


def a_step_taken_late__no_note():
    return _accumulating(lambda number: 3, (2, 6, 9))


def windows_that_differ_and_go_on__no_note():
    model, optimizer = _trained()
    sizes = itertools.cycle((3, 2, 5, 4, 7, 6))
    left = next(sizes)

    def step():
        nonlocal left
        for (x,) in LOADER:
            model(x).square().sum().backward()
            left -= 1
            if left == 0:
                optimizer.step()
                optimizer.zero_grad()
                left = next(sizes)

    return step


def _of_fetched_windows(take, divide=len):
    model, optimizer = _trained()

    def windows():
        while True:
            batches = iter(LOADER)
            while window := list(itertools.islice(batches, take)):
                yield window

    stream = windows()

    def step():
        window = next(stream)
        optimizer.zero_grad()
        for (x,) in window:
            (model(x).square().mean() / divide(window)).backward()
        optimizer.step()

    return step


def fetched_windows_divided_by_their_length__no_note():
    return _of_fetched_windows(4)


def fetched_windows_that_fill_the_epoch__no_note():
    return _of_fetched_windows(5, lambda window: 5)


def parts_of_one_fetched_batch__no_note():
    model, optimizer = _trained()
    loader = DataLoader(TensorDataset(torch.rand(40, 8)), batch_size=16)

    def step():
        for (x,) in loader:
            optimizer.zero_grad()
            for part in x.split(4):
                (model(part).square().sum() / len(x)).backward()
            optimizer.step()

    return step


def means_weighed_by_the_parts_of_a_whole__no_note():
    """The last counts a 20th, and the others the rest: no divisor is that of a larger window."""
    return _accumulating(lambda number: 20 if number == 9 else 9 / 0.95, ends=(9,))


def half_of_two_losses_without_accumulation__no_note():
    model, optimizer = _trained()

    def step():
        for (x,) in LOADER:
            made = model(x)
            (0.5 * (made.square().mean() + made.abs().mean())).backward()
            optimizer.step()
            optimizer.zero_grad()

    return step
