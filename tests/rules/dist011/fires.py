import torch
import torch.distributed as dist

from tests.rules.programs import with_losses


def only_rank_0_averages_the_loss__processes():
    rank = dist.get_rank()

    def after(number, loss):
        if rank == 0 and number % 4 == 3:
            dist.all_reduce(loss)  # DIST011

    return with_losses(after)


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

    return with_losses(after)


def another_number_of_samples__processes():
    counts = torch.zeros(3 + dist.get_rank())

    def after(number, loss):
        dist.all_reduce(counts)  # DIST011

    return with_losses(after)
