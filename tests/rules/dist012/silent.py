import itertools

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

from tests.rules.programs import optimized, trained_once


def _model(wrap=DistributedDataParallel):
    return optimized(wrap(torch.nn.Linear(4, 2)))


def _through(loader, wrap=DistributedDataParallel):
    model, optimizer = _model(wrap)

    def step():
        for (x,) in loader:
            trained_once(model, optimizer, x)

    return step


def _uneven(size=17):
    data = TensorDataset(torch.randn(size, 4))
    return DataLoader(Subset(data, range(dist.get_rank(), size, 2)), batch_size=4)


def a_sampler_that_pads__processes():
    data = TensorDataset(torch.randn(17, 4))
    sampler = DistributedSampler(data, num_replicas=2, rank=dist.get_rank(), shuffle=False)
    return _through(DataLoader(data, batch_size=4, sampler=sampler))


def uneven_samples_and_as_many_batches__processes():
    return _through(_uneven(15))


def a_loop_that_stops_after_as_many_batches_on_all__processes():
    model, optimizer = _model()
    loader = _uneven()

    def step():
        for number, (x,) in enumerate(loader):
            if number == 2:
                break
            trained_once(model, optimizer, x)

    return step


def a_part_of_it__processes():
    model, optimizer = _model()
    loader = _uneven()

    def step():
        for (x,) in itertools.islice(loader, 2):
            trained_once(model, optimizer, x)

    return step


def steps_that_are_counted__processes():
    model, optimizer = _model()
    loader = _uneven()
    batches = itertools.chain.from_iterable(loader for _ in itertools.count())

    def step():
        (x,) = next(batches)
        trained_once(model, optimizer, x)

    return step


def a_validation_on_uneven_shares__processes():
    model, optimizer = _model()
    held_out = _uneven()
    x = torch.randn(4, 4)

    def step():
        trained_once(model, optimizer, x)
        with torch.no_grad():
            for (x_held,) in held_out:
                model.module(x_held)

    return step


def ranks_that_share_nothing__processes():
    return _through(_uneven(), wrap=lambda module: module)


def one_process():
    loader = DataLoader(TensorDataset(torch.randn(17, 4)), batch_size=4)
    return _through(loader, wrap=lambda module: module)
