"""Near misses: MEM012 must stay silent on all of these."""

import torch
from torch import nn

MIB = 2**20
HOST_ROOM = 1024 * MIB


def small_dataset():
    model, samples = nn.Linear(8, 1), torch.ones(50 * MIB // 4)

    def step():
        model(samples[:32].reshape(4, 8)).mean().backward()

    return step


def large_at_the_start_and_given_back():
    model, samples = nn.Linear(8, 1), torch.ones(1000 * MIB // 4)
    del samples

    def step():
        model(torch.ones(4, 8)).mean().backward()

    return step


def reserved_and_never_touched():
    model, reserved = nn.Linear(8, 1), torch.empty(4000 * MIB // 4)

    def step():
        model(reserved[:32].reshape(4, 8).nan_to_num()).mean().backward()

    return step


def filled_in_few_of_the_steps():
    model, count = nn.Linear(8, 1), [0]

    def step():
        count[0] += 1
        held = torch.ones(1000 * MIB // 4) if count[0] == 4 else torch.ones(32)
        model(held[:32].reshape(4, 8)).mean().backward()

    return step
