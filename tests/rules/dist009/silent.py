"""DIST009 must say nothing about these."""

import torch
import torch.distributed as dist

from tests.echo_group import ranks


def _training(after):
    ranks()
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    taken = iter(range(100_000))

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()
        after(next(taken))

    return step


def around_a_checkpoint_now_and_then():
    def after(number):
        if number % 5 == 0:
            dist.barrier()

    return _training(after)


def one_loss_is_averaged():
    def after(number):
        dist.all_reduce(torch.ones(1))

    return _training(after)


def a_barrier_of_threads():
    import threading

    barrier = threading.Barrier(1)

    def after(number):
        barrier.wait()

    return _training(after)


def before_the_training():
    ranks()
    dist.barrier()
    return _training(lambda number: None)
