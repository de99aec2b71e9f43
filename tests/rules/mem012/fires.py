"""MEM012 has no line of its own: each of these must give one finding."""

import torch
from torch import nn

MIB = 2**20
HOST_ROOM = 1024 * MIB


def dataset_read_into_memory():
    model, samples = nn.Linear(8, 1), torch.ones(1000 * MIB // 4)

    def step():
        model(samples[:32].reshape(4, 8)).mean().backward()

    return step


def many_small_caches():
    model, caches = nn.Linear(8, 1), [torch.ones(10 * MIB // 4) for _ in range(100)]

    def step():
        model(caches[0][:32].reshape(4, 8)).mean().backward()

    return step
