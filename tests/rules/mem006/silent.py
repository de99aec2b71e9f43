import torch
from torch import nn

MIB = 2**20


def all_of_it_on_the_host():
    def step():
        scores = torch.empty(600 * MIB, dtype=torch.uint8)
        del scores

    return step


def much_is_allocated_but_never_at_once__rehearsal():
    def step():
        for _ in range(12):
            part = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
            del part

    return step


def a_small_model__rehearsal():
    model = nn.Linear(256, 256, device="cuda")
    return lambda: model(torch.ones(64, 256, device="cuda")).mean().backward()


def large_storage_seen_through_many_views__rehearsal():
    large = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")

    def step():
        views = [large[i * MIB :] for i in range(200)]
        del views

    return step
