import torch
from torch import nn


def schedule_by_hand_with_one_base_rate():
    body, head = nn.Linear(8, 8), nn.Linear(8, 1)
    groups = [{"params": body.parameters(), "lr": 1e-4}, {"params": head.parameters()}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    steps = []

    def step():
        steps.append(len(steps))
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, len(steps) / 10)  # OPT018
        optimizer.zero_grad()
        head(body(torch.randn(4, 8))).square().mean().backward()
        optimizer.step()

    return step
