import torch
import torch.distributed as dist

from tests.rules.programs import with_losses


def all_ranks_average_and_one_prints__processes():
    rank = dist.get_rank()

    def after(number, loss):
        dist.all_reduce(loss)
        if rank == 0 and number % 4 == 3:
            str(loss.item())

    return with_losses(after)


def the_same_call_from_two_lines__processes():
    rank = dist.get_rank()

    def after(number, loss):
        if rank == 0:
            dist.all_reduce(loss)
        else:
            dist.all_reduce(torch.zeros(()))

    return with_losses(after)


def before_and_after_a_checkpoint__processes():
    rank = dist.get_rank()

    def after(number, loss):
        if number % 3 == 0:
            dist.barrier()
            if rank == 0:
                bytes(10)
            dist.barrier()

    return with_losses(after)


def one_process_alone():
    return with_losses(lambda number, loss: None)
