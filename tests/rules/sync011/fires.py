import torch
from torch import nn


def moved_after_it_was_made__rehearsal():
    model, x = nn.Linear(8, 2, device="cuda"), torch.ones(4, 8, device="cuda")

    def step():
        weights = torch.tensor([0.3, 0.7]).to("cuda")  # SYNC011
        (model(x) * weights).mean().backward()

    return step


def as_tensor__rehearsal():
    model, x, step_count = nn.Linear(8, 2, device="cuda"), torch.ones(4, 8, device="cuda"), [0]

    def step():
        step_count[0] += 1
        scale = torch.as_tensor(1.0 / step_count[0], device="cuda")  # SYNC011
        (model(x) * scale).mean().backward()

    return step


def an_element_set_to_a_number__rehearsal():  # python_variable_indexing.cpp makes it a host tensor, which is copied
    model, x, mask = nn.Linear(8, 2, device="cuda"), torch.ones(4, 8, device="cuda"), torch.zeros(4, 2, device="cuda")

    def step():
        mask[0, 0] = 1.0  # SYNC011
        (model(x) * mask).mean().backward()

    return step
