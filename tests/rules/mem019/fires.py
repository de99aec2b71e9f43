import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.rules.programs import endless


def texts_of_a_nested_dataset():
    class Texts(Dataset):
        def __init__(self):
            self.texts = [f"text number {n} of a corpus" * 4 for n in range(300_000)]  # MEM019

        def __getitem__(self, index):
            return torch.tensor([float(len(self.texts[index]))])

    class Split(Dataset):
        def __init__(self, inner):
            self.inner = inner

        def __len__(self):
            return len(self.inner.texts)

        def __getitem__(self, index):
            return self.inner[index]

    loader = DataLoader(Split(Texts()), batch_size=256, shuffle=True, num_workers=3)
    batches, model = endless(loader), nn.Linear(1, 1)

    def step():
        model(next(batches)).square().mean().backward()

    return step
