import torch
from torch import nn


def kept_blocks_have_segments_of_their_own__cuda():
    kept = [torch.empty(56 * 2**20, dtype=torch.uint8, device="cuda") for _ in range(8)]

    def step():
        large = torch.empty(96 * 2**20, dtype=torch.uint8, device="cuda")
        del large
        kept.append(kept.pop(0))

    return step


def free_segments_that_nothing_pins__cuda():
    def step():
        large = torch.empty(512 * 2**20, dtype=torch.uint8, device="cuda")
        del large

    return step


def parameters_of_a_small_model__cuda():
    model = nn.Linear(64, 64, device="cuda")
    return lambda: model(torch.ones(8, 64, device="cuda")).mean().backward()
