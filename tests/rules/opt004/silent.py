import torch
from torch import nn


def clip_by_value__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        model(torch.ones(4, 8, device="cuda")).mean().backward()
        nn.utils.clip_grad_value_(model.parameters(), 1.0)

    return step


def checked_every_fiftieth_step__rehearsal():
    model, count = nn.Linear(8, 1, device="cuda"), [0]

    def step():
        model(torch.ones(4, 8, device="cuda")).mean().backward()
        count[0] += 1
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=count[0] % 50 == 0)

    return step
