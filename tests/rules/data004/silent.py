import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def pageable_batches_are_another_rules__rehearsal():
    model = nn.Linear(8, 1, device="cuda")
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 8)), batch_size=4))

    def step():
        (x,) = next(batches)
        model(x.to("cuda")).mean().backward()

    return step


def moved_once_in_five_steps__rehearsal():
    model, kept, count = nn.Linear(8, 1, device="cuda"), [], [0]
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 8)), batch_size=4, pin_memory=True))

    def step():
        if count[0] % 5 == 0:
            kept.append(next(batches)[0].to("cuda"))
        count[0] += 1
        model(kept[-1]).mean().backward()

    return step
