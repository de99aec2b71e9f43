import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, SequentialSampler, Subset, TensorDataset

LABELS = torch.arange(64) // 16


def _stepping(loader):
    torch.manual_seed(0)
    model = nn.Linear(3, 4)

    def batches():
        while True:
            yield from loader

    following = batches()

    def step():
        x, y = next(following)
        F.cross_entropy(model(x), y).backward()

    return step


def folder_like_dataset_never_shuffled():
    class Folder(Dataset):
        def __init__(self):
            self.samples, self.targets = torch.randn(64, 3), LABELS.tolist()

        def __len__(self):
            return len(self.targets)

        def __getitem__(self, index):
            return self.samples[index], self.targets[index]

    loader = DataLoader(Folder(), 8, shuffle=False)  # TRAIN006
    return _stepping(loader)


def pairs_of_a_sample_and_its_class():
    class Folder(Dataset):
        def __init__(self):
            self.root = "data"
            self.samples = [(torch.randn(3), int(label)) for label in LABELS]

        def __len__(self):
            return len(self.samples)

        def __getitem__(self, index):
            return self.samples[index]

    loader = DataLoader(Folder(), 8, drop_last=True)  # TRAIN006
    return _stepping(loader)


def a_list_of_pairs():
    loader = DataLoader([(torch.randn(3), int(label)) for label in LABELS], 8)  # TRAIN006
    return _stepping(loader)


def part_of_it_in_its_order():
    data = Subset(TensorDataset(torch.randn(64, 3), LABELS), range(48))
    loader = DataLoader(data, batch_size=8, sampler=SequentialSampler(data))  # TRAIN006
    return _stepping(loader)


def class_by_class_for_a_gpu__rehearsal():
    data = TensorDataset(torch.randn(64, 3), LABELS)
    loader = DataLoader(data, batch_size=8)  # TRAIN006
    model = nn.Linear(3, 4, device="cuda")

    def batches():
        while True:
            yield from loader

    following = batches()

    def step():
        x, y = (each.to("cuda") for each in next(following))
        F.cross_entropy(model(x), y).backward()

    return step
