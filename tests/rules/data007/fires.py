import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

from tests.rules.data007.silent import _loading
from tests.rules.programs import Made, fed
from tests.timeline.kineto import loop, text


def slow_collate_function():
    def collate(rows):
        time.sleep(0.004)  # DATA007
        return torch.stack(rows)

    return fed(DataLoader(list(torch.ones(4000, 8)), batch_size=4, collate_fn=collate))


def loading_whose_time_is_spread():
    class Even(Made):
        """Five lines, none of which takes half of the time: together they do."""

        def __getitem__(self, index):
            time.sleep(0.0004)
            time.sleep(0.0004)
            time.sleep(0.0014)  # DATA007
            time.sleep(0.0004)
            time.sleep(0.0004)
            return torch.full((8,), float(index))

    return fed(DataLoader(Even(None), batch_size=4))


def time_in_a_helper_of_a_worker():
    def fetched(index):
        time.sleep(0.002)  # DATA007
        return torch.full((8,), float(index))

    return fed(DataLoader(Made(lambda index: fetched(index)), batch_size=4, num_workers=1))


def sampler_that_searches_its_list_for_each_batch():
    class Slow(Sampler):
        def __iter__(self):
            for start in range(0, 4000, 4):
                time.sleep(0.004)  # DATA007
                yield range(start, start + 4)

        def __len__(self):
            return 1000

    return fed(DataLoader(TensorDataset(torch.ones(4000, 8)), batch_sampler=Slow()))


def iterator_with_workers_made_for_each_batch():
    model = nn.Linear(8, 1)
    loader = DataLoader(TensorDataset(torch.ones(4000, 8)), batch_size=4, num_workers=1)

    def step():
        (x,) = next(iter(loader))  # DATA007
        model(x).mean().backward()

    return step


def order_of_a_large_dataset_drawn_for_each_batch():
    model = nn.Linear(8, 1)
    numbers = range(1_000_000)
    loader = DataLoader(numbers, batch_size=4, shuffle=True)

    def step():
        x = next(iter(loader))  # DATA007
        model(x.float().expand(8, 4).T / 1e6).mean().backward()

    return step


def workers_started_for_each_short_epoch():
    model = nn.Linear(8, 1)
    loader = DataLoader(TensorDataset(torch.ones(8, 8)), batch_size=4, num_workers=1)  # DATA007

    def step():
        for (x,) in loader:
            model(x).mean().backward()

    return step


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
