import torch
from torch import nn


def free_segments_that_nothing_pins__cuda():
    def step():
        large = torch.empty(512 * 2**20, dtype=torch.uint8, device="cuda")
        del large

    return step


def parameters_of_a_small_model__cuda():
    model = nn.Linear(64, 64, device="cuda")
    return lambda: model(torch.ones(8, 64, device="cuda")).mean().backward()
