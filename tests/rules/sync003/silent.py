"""Near misses: SYNC003 must stay silent on all of these."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def indices_drawn_on_the_host():
    model, data = nn.Linear(8, 1), torch.ones(16, 8)

    def step():
        rows = torch.randperm(16)[:4].tolist()
        model(data[rows]).mean().backward()

    return step


def weights_saved_every_fiftieth_step():
    model, count, saved = nn.Linear(8, 1), [0], {}

    def step():
        model(torch.ones(4, 8)).mean().backward()
        count[0] += 1
        if count[0] % 50 == 0:
            saved["weight"] = model.weight.detach().cpu()

    return step


def sampler_of_a_loader():
    model = nn.Linear(8, 1)
    loader = DataLoader(TensorDataset(torch.ones(400, 8)), batch_size=4, shuffle=True)
    state = {"batches": iter(loader)}

    def step():
        try:
            (x,) = next(state["batches"])
        except StopIteration:
            state["batches"] = iter(loader)
            (x,) = next(state["batches"])
        model(x).mean().backward()

    return step


def moved_to_the_training_device():
    model = nn.Linear(8, 1)
    device = next(model.parameters()).device

    def step():
        x = torch.ones(4, 8).to(device, non_blocking=True)
        model(x).mean().backward()

    return step


def cast_to_another_dtype():
    model = nn.Linear(8, 1)

    def step():
        out = model(torch.ones(4, 8))
        out.to(torch.float64).mean().backward()

    return step
