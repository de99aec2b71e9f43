"""DATA007 must report exactly the marked lines."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.timeline.kineto import kernel, loop, note, product, text


class Slow(Dataset):
    """Each sample takes about 1 ms to make."""

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((8,), float(index))


def loaded_in_the_step_itself():
    model = nn.Linear(8, 1)
    loader = DataLoader(Slow(), batch_size=4)  # DATA007
    batches = iter(loader)

    def step():
        model(next(batches)).mean().backward()

    return step


def slow_collate_function():
    model = nn.Linear(8, 1)

    def collate(rows):
        time.sleep(0.004)
        return torch.stack(rows)

    batches = iter(DataLoader(list(torch.ones(4000, 8)), batch_size=4, collate_fn=collate))  # DATA007

    def step():
        model(next(batches)).mean().backward()

    return step


def _loading(number, start, waits, busy=0):
    """A step of 10 ms that waits for a batch first, while the device works on ``busy`` us of the step before."""
    loader = note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start + 10, waits)
    before = [kernel("sgemm", start, busy, 0)] if busy else []
    return [loader, *before, *product(start + waits + 20, number, 500)]


def loop_without_a_batch__trace():
    return text(loop(4, 10_000.0, lambda number, start: _loading(number, start, 5000)))


def third_of_the_wait_is_not_hidden__trace():
    return text(loop(4, 10_000.0, lambda number, start: _loading(number, start, 9000, busy=5000)))


def bursts_of_a_loader_with_too_few_workers__trace():
    """Half of the time, in one step of four: four workers give four batches at once, and then none."""
    return text(loop(12, 10_000.0, lambda number, start: _loading(number, start, 9000 if number % 4 == 2 else 3)))


def whole_epochs_begin_anew__trace():
    """A third of the time in two steps of eight, as if workers were started for each epoch."""
    return text(loop(8, 10_000.0, lambda number, start: _loading(number, start, 9300 if number in (3, 6) else 400)))
