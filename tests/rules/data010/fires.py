import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.rules.programs import trained_once

ROWS = [np.ones(3000, dtype=np.float32) for _ in range(16)]


def replay_batch_in_the_step():
    model = nn.Linear(3000, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        states = torch.tensor(ROWS)  # DATA010
        trained_once(model, optimizer, states)

    return step


def frames_of_several_cameras():
    frames = [tuple(np.ones((8, 24, 24), dtype=np.float32) for _ in range(2)) for _ in range(4)]
    model = nn.Sequential(nn.Conv3d(2, 2, 3), nn.Flatten(), nn.LazyLinear(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        x = torch.as_tensor(  # DATA010
            frames,
            dtype=torch.float32,
        )
        trained_once(model, optimizer, x)

    return step


def collate_function_without_workers():
    def pack(samples):
        return torch.tensor(samples)  # DATA010

    stream = iter(DataLoader(ROWS * 100, batch_size=16, collate_fn=pack))
    model = nn.Linear(3000, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        trained_once(model, optimizer, next(stream))

    return step
