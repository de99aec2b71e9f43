import functools

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.rules.programs import optimized, trained_once

DATA = TensorDataset(torch.randn(32, 8))


def _epochs(sampler, begins=lambda epoch: None):
    loader = DataLoader(DATA, batch_size=8, sampler=sampler)
    model, optimizer = optimized(torch.nn.Linear(8, 4))

    def steps():
        for epoch in range(1000):
            begins(epoch)
            for (x,) in loader:
                trained_once(model, optimizer, x)
                yield

    return functools.partial(next, steps())


def set_epoch_at_each_epoch():
    sampler = DistributedSampler(DATA, num_replicas=2, rank=0)
    return _epochs(sampler, sampler.set_epoch)


def an_order_that_is_not_shuffled():
    return _epochs(DistributedSampler(DATA, num_replicas=2, rank=0, shuffle=False))


def a_sampler_of_one_rank():
    return _epochs(DistributedSampler(DATA, num_replicas=1, rank=0))


def a_validation_now_and_then():
    sampler = DistributedSampler(DATA, num_replicas=2, rank=0)
    held_out = DataLoader(DATA, 8, sampler=DistributedSampler(DATA, num_replicas=2, rank=0))
    loader = DataLoader(DATA, batch_size=8, sampler=sampler)
    model, optimizer = optimized(torch.nn.Linear(8, 4))

    def steps():
        for epoch in range(1000):
            sampler.set_epoch(epoch)
            for _ in range(4):
                for (x,) in loader:
                    trained_once(model, optimizer, x)
                    yield
                sampler.set_epoch(1000 + sampler.epoch)
            model.eval()
            for (x,) in held_out:
                with torch.no_grad():
                    model(x)
            model.train()

    return functools.partial(next, steps())
