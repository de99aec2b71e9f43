import torch
from torch import nn


def condition_in_front_of_an_instance_norm():
    layer, norm, head = nn.Conv1d(2, 6, 3), nn.InstanceNorm1d(6, affine=True), nn.Linear(6, 1)
    condition = nn.Linear(4, 6)

    def step():
        shift = condition(torch.randn(3, 4)).unsqueeze(-1)
        out = norm(shift + layer(torch.randn(3, 2, 9)))  # TRAIN026
        head(out.relu().mean(-1)).square().mean().backward()

    return step
