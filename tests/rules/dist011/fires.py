"""DIST011 must name the marked lines."""

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


def only_rank_0_averages_the_loss__processes():
    rank = dist.get_rank()

    def after(number, loss):
        if rank == 0 and number % 4 == 3:
            dist.all_reduce(loss)  # DIST011

    return _training(after)


def the_order_depends_on_the_rank__processes():
    rank = dist.get_rank()

    def after(number, loss):
        dist.all_reduce(loss)
        if rank == 0:
            dist.broadcast(loss, 0)  # DIST011
            dist.barrier()
        else:
            dist.barrier()
            dist.broadcast(loss, 0)

    return _training(after)


def another_number_of_samples__processes():
    counts = torch.zeros(3 + dist.get_rank())

    def after(number, loss):
        dist.all_reduce(counts)  # DIST011

    return _training(after)
