import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import fed


def collate_moves_to_the_only_device_there_is():
    def collate(rows):
        return torch.stack([row for (row,) in rows]).to("cpu")

    return fed(DataLoader(TensorDataset(torch.ones(4000, 8)), batch_size=4, collate_fn=collate))


def table_on_the_device_without_a_loader__cuda():
    model, table = nn.Linear(8, 1, device="cuda"), torch.ones(64, 8, device="cuda")
    return lambda: model(table[:4]).mean().backward()
