import torch
from torch import nn


def class_of_torch_amp():
    model, scaler = nn.Linear(8, 1), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        with torch.amp.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.ones(4, 8)).float().mean()
        scaler.scale(loss).backward()  # AMP006
        scaler.step(optimizer)
        scaler.update()

    return step


def deprecated_class_made_and_never_entered():
    model = nn.Linear(8, 1)
    torch.cuda.amp.autocast()

    def step():
        model(torch.ones(4, 8)).mean()

    return step
