"""DIST011 must say nothing about these."""

import torch
import torch.distributed as dist


def _training(after):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    taken = iter(range(100_000))

    def step():
        optimizer.zero_grad()
        loss = model(torch.randn(4, 4)).square().mean()
        loss.backward()
        optimizer.step()
        after(next(taken), loss.detach())

    return step


def all_ranks_average_and_one_prints__processes():
    rank = dist.get_rank()

    def after(number, loss):
        dist.all_reduce(loss)
        if rank == 0 and number % 4 == 3:
            str(loss.item())

    return _training(after)


def the_same_call_from_two_lines__processes():
    rank = dist.get_rank()

    def after(number, loss):
        if rank == 0:
            dist.all_reduce(loss)
        else:
            dist.all_reduce(torch.zeros(()))

    return _training(after)


def before_and_after_a_checkpoint__processes():
    rank = dist.get_rank()

    def after(number, loss):
        if number % 3 == 0:
            dist.barrier()
            if rank == 0:
                bytes(10)
            dist.barrier()

    return _training(after)


def one_process_alone():
    return _training(lambda number, loss: None)
