import torch
from torch import nn


def _parts():
    model = nn.Linear(8, 1).cuda()
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), torch.amp.GradScaler("cuda")


def default_dtype_of_autocast__cuda():
    model, optimizer, scaler = _parts()
    x = torch.ones(4, 8, device="cuda")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda"):  # AMP004
            loss = model(x).float().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def context_that_was_made_before__cuda():
    model, optimizer, scaler = _parts()
    context = torch.amp.autocast("cuda", dtype=torch.float16)
    x = torch.ones(4, 8, device="cuda")

    def step():
        optimizer.zero_grad()
        with context:  # AMP004
            loss = model(x).float().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step
