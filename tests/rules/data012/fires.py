import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.rules.programs import trained_once


def dataset_without_workers():
    file = Path(tempfile.mkdtemp()) / "spectra.npy"
    np.save(file, np.ones((4000, 128), dtype=np.float32))

    class Spectra(Dataset):
        def __len__(self):
            return 4000

        def __getitem__(self, index):
            return np.load(file)[index].copy()  # DATA012

    stream = iter(DataLoader(Spectra(), batch_size=16))
    model = nn.Linear(128, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        trained_once(model, optimizer, next(stream))

    return step


def annotations_that_the_step_reads():
    file = Path(tempfile.mkdtemp()) / "labels.json"
    file.write_text(json.dumps({str(n): n / 1000 for n in range(20_000)}))
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def label(index):
        with open(file) as opened:
            return json.load(opened)[str(index)]  # DATA012

    def step():
        trained_once(model, optimizer, torch.tensor([[label(n)] for n in range(8)]))

    return step


def a_few_episodes_of_many_frames():
    folder = Path(tempfile.mkdtemp())
    for episode in range(2):
        torch.save(torch.ones(500, 512), folder / f"{episode}.pt")

    class Frames(Dataset):
        def __len__(self):
            return 1000

        def __getitem__(self, index):
            episode = torch.load(str(folder / f"{index % 2}.pt"))  # DATA012
            return episode[index // 2]

    stream = iter(DataLoader(Frames(), batch_size=16))
    model = nn.Linear(512, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        trained_once(model, optimizer, next(stream))

    return step
