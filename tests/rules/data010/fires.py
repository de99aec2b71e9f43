import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.rules.programs import fed

ROWS = [np.ones(3000, dtype=np.float32) for _ in range(16)]


def frames_of_several_cameras():
    frames = [tuple(np.ones((8, 24, 24), dtype=np.float32) for _ in range(2)) for _ in range(4)]
    model = nn.Sequential(nn.Conv3d(2, 2, 3), nn.Flatten(), nn.LazyLinear(1))

    def step():
        x = torch.as_tensor(  # DATA010
            frames,
            dtype=torch.float32,
        )
        model(x).mean().backward()

    return step


def collate_function_without_workers():
    def pack(samples):
        return torch.tensor(samples)  # DATA010

    return fed(DataLoader(ROWS * 100, batch_size=16, collate_fn=pack), width=3000)
