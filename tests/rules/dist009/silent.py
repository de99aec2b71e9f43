import torch
import torch.distributed as dist

from tests.echo_group import ranks
from tests.rules.programs import on_ranks


def around_a_checkpoint_now_and_then():
    def after(number):
        if number % 5 == 0:
            dist.barrier()

    return on_ranks(after)


def one_loss_is_averaged():
    def after(number):
        dist.all_reduce(torch.ones(1))

    return on_ranks(after)


def a_barrier_of_threads():
    import threading

    barrier = threading.Barrier(1)

    def after(number):
        barrier.wait()

    return on_ranks(after)


def before_the_training():
    ranks()
    dist.barrier()
    return on_ranks(lambda number: None)
