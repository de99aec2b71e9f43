import functools

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.rules.programs import optimized, trained_once

DATA = TensorDataset(torch.randn(32, 8))


def epochs_without_set_epoch():
    sampler = DistributedSampler(DATA, num_replicas=2, rank=0)
    loader = DataLoader(DATA, batch_size=8, sampler=sampler)
    model, optimizer = optimized(torch.nn.Linear(8, 4))

    def steps():
        while True:  # DIST007
            for (x,) in loader:
                trained_once(model, optimizer, x)
                yield

    return functools.partial(next, steps())


def an_epoch_is_a_function():
    sampler = DistributedSampler(DATA, num_replicas=2, rank=0)
    loader = DataLoader(DATA, batch_size=8, sampler=sampler)
    model, optimizer = optimized(torch.nn.Linear(8, 4))

    def epoch():
        for number, (x,) in enumerate(
            loader,
        ):
            if number >= 0:
                trained_once(model, optimizer, x)
            yield

    def steps():
        for _ in range(1000):  # DIST007
            yield from epoch()

    return functools.partial(next, steps())


def set_epoch_of_a_resumed_run_and_never_again():
    sampler = DistributedSampler(DATA, num_replicas=4, rank=1, seed=3)
    sampler.set_epoch(7)
    loader = DataLoader(DATA, batch_size=4, sampler=sampler)
    model, optimizer = optimized(torch.nn.Linear(8, 4))
    batches = iter(loader)

    def step():
        nonlocal batches
        x = next(batches, None)
        if x is None:
            batches = iter(loader)  # DIST007
            x = next(batches)
        trained_once(model, optimizer, x[0])

    return step
