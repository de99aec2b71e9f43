import torch
from torch import nn


def zeros_by_cuda__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        state = torch.zeros(64, 8).cuda()  # SYNC010
        model(state).mean().backward()

    return step


def converted_on_the_way__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        mask = torch.ones(64, 8).bool().float().to("cuda")  # SYNC010
        model(mask).mean().backward()

    return step


def a_causal_mask_made_in_forward__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        mask = torch.triu(torch.ones(64, 8), diagonal=1).bool().to("cuda")  # SYNC010
        model(mask.float()).mean().backward()

    return step
