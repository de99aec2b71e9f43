import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import fed, numbered

ROWS = TensorDataset(torch.ones(4000, 8))


def pageable_batches_are_another_rules__rehearsal():
    return fed(DataLoader(ROWS, batch_size=4), "cuda", move=lambda x: x.to("cuda"))


def moved_once_in_five_steps__rehearsal():
    model, kept = nn.Linear(8, 1, device="cuda"), []
    batches = iter(DataLoader(ROWS, batch_size=4, pin_memory=True))

    def step(number):
        if number % 5 == 0:
            kept.append(next(batches)[0].to("cuda"))
        model(kept[-1]).mean().backward()

    return numbered(step, 0)
