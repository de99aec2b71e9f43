"""MEM008 must report exactly the marked lines."""

import torch

MIB = 2**20


def each_batch_longer_than_the_last__rehearsal():
    lengths = iter(range(8, 100))

    def step():
        batch = torch.empty(next(lengths) * 8 * MIB, dtype=torch.uint8, device="cuda")  # MEM008
        del batch

    return step


def lengths_in_turn_with_ever_longer_ones_between__rehearsal():
    lengths = iter([60, 20, 64, 30, 70, 25, 77, 30, 85, 20, 93, 22, 102, 30, 111, 40, 120, 20, 130, 40] * 3)

    def step():
        weights = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
        batch = torch.empty(next(lengths) * 4 * MIB, dtype=torch.uint8, device="cuda")  # MEM008
        del batch, weights

    return step
