import json
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.rules.programs import Made, fed, optimized, trained_once


def annotations_that_the_step_reads():
    file = Path(tempfile.mkdtemp()) / "labels.json"
    file.write_text(json.dumps({str(n): n / 1000 for n in range(20_000)}))
    model, optimizer = optimized(nn.Linear(1, 1), lr=1e-4)

    def label(index):
        with open(file) as opened:
            return json.load(opened)[str(index)]  # DATA012
    return lambda: trained_once(model, optimizer, torch.tensor([[label(n)] for n in range(8)]))


def a_few_episodes_of_many_frames():
    folder = Path(tempfile.mkdtemp())
    for episode in range(2):
        torch.save(torch.ones(500, 512), folder / f"{episode}.pt")

    def frame(index):
        episode = torch.load(str(folder / f"{index % 2}.pt"))  # DATA012
        return episode[index // 2]

    return fed(DataLoader(Made(frame, 1000), batch_size=16), width=512)
