import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


def collate_moves_the_batch__cuda():
    model = nn.Linear(8, 1, device="cuda")

    def collate(rows):
        batch = torch.stack([row for (row,) in rows])
        return batch.to("cuda")  # DATA009

    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 8)), batch_size=4, collate_fn=collate))
    return lambda: model(next(batches)).mean().backward()


def dataset_moves_each_sample__cuda():
    model = nn.Linear(8, 1, device="cuda")

    class Rows(Dataset):
        def __len__(self):
            return 4000

        def __getitem__(self, index):
            return torch.ones(8).cuda()  # DATA009

    batches = iter(DataLoader(Rows(), batch_size=4))
    return lambda: model(next(batches)).mean().backward()


def a_transform_moves_each_sample__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    class Scaled:
        """A transform, far from the dataset that calls it."""

        def __init__(self, device):
            self.factor = torch.full((8,), 2.0, device=device)

        def __call__(self, sample):
            sample = sample.to(self.factor.device)  # DATA009
            return sample * self.factor

    transform = Scaled("cuda")

    class Rows(Dataset):
        def __len__(self):
            return 4000

        def __getitem__(self, index):
            return transform(torch.ones(8))

    batches = iter(DataLoader(Rows(), batch_size=4))
    return lambda: model(next(batches)).mean().backward()


def tensors_of_the_dataset_are_there__rehearsal():
    model = nn.Linear(8, 1, device="cuda")
    loader = DataLoader(TensorDataset(torch.ones(4000, 8).cuda()), batch_size=4)  # DATA009
    batches = iter(loader)
    return lambda: model(next(batches)[0]).mean().backward()
