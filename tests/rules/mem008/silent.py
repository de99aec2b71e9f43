"""Near misses: MEM008 must stay silent on all of these."""

import torch

MIB = 2**20


def the_longest_batch_comes_first__rehearsal():
    lengths = iter(range(100, 8, -1))

    def step():
        batch = torch.empty(next(lengths) * 8 * MIB, dtype=torch.uint8, device="cuda")
        del batch

    return step


def many_sizes_that_are_the_same_in_each_step__rehearsal():
    def step():
        for size in range(20, 60, 5):
            layer = torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
            del layer

    return step


def growth_that_is_kept__rehearsal():
    kept, sizes = [], iter(range(20, 100))

    def step():
        kept.append(torch.empty(next(sizes) * MIB, dtype=torch.uint8, device="cuda"))

    return step


def lengths_that_vary_between_the_same_few__rehearsal():
    lengths = iter([40, 60, 80, 100] * 20)

    def step():
        batch = torch.empty(next(lengths) * 8 * MIB, dtype=torch.uint8, device="cuda")
        del batch

    return step


def short_batches_of_every_length__rehearsal():
    lengths = iter(range(1, 100))

    def step():
        batch = torch.empty(next(lengths) * 64 * 1024, dtype=torch.uint8, device="cuda")
        del batch

    return step
