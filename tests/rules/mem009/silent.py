import torch
from torch import nn

MIB = 2**20


def blocks_of_one_size_come_and_go__rehearsal():
    kept = []

    def step():
        kept.append(torch.empty(96 * MIB, dtype=torch.uint8, device="cuda"))
        del kept[:-8]

    return step


def holes_that_the_next_request_fills__rehearsal():
    kept = [torch.empty(56 * MIB, dtype=torch.uint8, device="cuda") for _ in range(8)]

    def step():
        del kept[3]
        kept.append(torch.empty(56 * MIB, dtype=torch.uint8, device="cuda"))

    return step


def a_small_model__rehearsal():
    model = nn.Linear(256, 256, device="cuda")
    return lambda: model(torch.ones(64, 256, device="cuda")).mean().backward()
