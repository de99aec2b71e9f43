import torch
from torch import nn


PARTS = 4


def cleared_in_the_loop_of_a_model_that_clips_behind_it():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        for part in torch.randn(32, 8).chunk(PARTS):
            model.zero_grad()  # OPT017
            (model(part).square().mean() / PARTS).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step
