import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.rules.programs import optimized


def _data(seed=0):
    return TensorDataset(torch.randn(256, 4, generator=torch.Generator().manual_seed(seed)))


def _training(batches, wrap=DistributedDataParallel, more=lambda: None):
    model, optimizer = optimized(wrap(torch.nn.Linear(4, 2)))

    def step():
        optimizer.zero_grad()
        model(next(batches)[0]).square().mean().backward()
        optimizer.step()
        more()

    return step


def divided_by_a_sampler__processes():
    data = _data()
    sampler = DistributedSampler(data, num_replicas=2, rank=dist.get_rank(), shuffle=False)
    return _training(iter(DataLoader(data, batch_size=4, sampler=sampler)))


def shuffled_by_a_seed_of_each_rank__processes():
    torch.manual_seed(dist.get_rank())
    return _training(iter(DataLoader(_data(), batch_size=4, shuffle=True)))


def pieces_of_one_model_get_the_same_batches__processes():
    return _training(iter(DataLoader(_data(), batch_size=4)), wrap=lambda module: module)


def each_rank_validates_all__processes():
    data, held_out = _data(), DataLoader(_data(1), batch_size=4)
    sampler = DistributedSampler(data, num_replicas=2, rank=dist.get_rank(), shuffle=False)

    def validate():
        with torch.no_grad():
            for _ in held_out:
                pass

    return _training(iter(DataLoader(data, batch_size=4, sampler=sampler)), more=validate)


def batches_that_are_all_alike__processes():
    data = TensorDataset(torch.ones(256, 4))
    return _training(iter(DataLoader(data, batch_size=4)))


def one_process():
    return _training(iter(DataLoader(_data(), batch_size=4)), wrap=lambda module: module)
