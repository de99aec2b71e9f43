import torch
import torch.distributed as dist

from tests.rules.programs import on_ranks


def after_each_step():
    def after(number):
        dist.barrier()  # DIST009

    return on_ranks(after)


def taken_by_name():
    from torch.distributed import barrier

    def after(number):
        barrier()  # DIST009

    return on_ranks(after)


def on_every_second_step():
    def after(number):
        if number % 2 == 0:
            torch.distributed.barrier(group=None)  # DIST009

    return on_ranks(after)
