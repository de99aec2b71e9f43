"""MEM003 has no line of its own: each of these must give one finding."""

import torch
from torch import nn


def batches_kept_on_the_host():
    model, seen = nn.Linear(8, 1), []

    def step():
        model(torch.ones(4, 8)).mean().backward()
        seen.append(torch.ones(1500, 1000))

    return step


def outputs_kept_on_the_device__cuda():
    model, seen = nn.Linear(512, 512, device="cuda"), []

    def step():
        out = model(torch.ones(512, 512, device="cuda"))  # MEM003
        seen.append(out.detach())
        out.mean().backward()

    return step


def tensors_kept_on_the_device__rehearsal():
    model = torch.nn.Linear(64, 64, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    kept = []

    def step():
        optimizer.zero_grad()
        out = model(torch.ones(4096, 64, device="cuda"))
        out.square().mean().backward()
        optimizer.step()
        kept.append(out.detach().clone())  # MEM003

    return step
