import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

LABELS = torch.arange(64) // 16


def _stepping(loader, beside=None):
    torch.manual_seed(0)
    model = nn.Linear(3, 64)

    def batches(of):
        while True:
            yield from of

    following = batches(loader)
    others = None if beside is None else batches(beside)

    def step():
        x, y = next(following)
        F.cross_entropy(model(x), y.long()).backward()
        if others is not None:
            with torch.no_grad():
                model(next(others)[0])

    return step


def one_order_of_mixed_classes():
    return _stepping(DataLoader(TensorDataset(torch.randn(64, 3), torch.arange(64) % 4), 8))


def mixed_by_a_subset():
    data = TensorDataset(torch.randn(64, 3), LABELS)
    return _stepping(DataLoader(Subset(data, torch.randperm(64).tolist()), 8))


def evaluated_beside_a_loader_that_shuffles():
    data = TensorDataset(torch.randn(64, 3), LABELS)
    return _stepping(DataLoader(data, 8, shuffle=True), DataLoader(data, 8))


def evaluated_beside_tensors_that_train():
    model = nn.Linear(3, 4)

    def taken():
        loader = DataLoader(TensorDataset(torch.randn(64, 3), LABELS), 8)
        while True:
            yield from loader

    following = taken()

    def step():
        F.cross_entropy(model(torch.randn(8, 3)), LABELS[::8]).backward()
        with torch.no_grad():
            model(next(following)[0])

    return step


def sorted_by_length():
    """Rows and their lengths, which begin at 1."""
    return _stepping(DataLoader(TensorDataset(torch.randn(64, 3), LABELS + 1), 8))


def series_in_the_order_of_time():
    return _stepping(DataLoader(TensorDataset(torch.randn(64, 3), torch.arange(64)), 8))


def sorted_numbers_that_are_no_classes():
    values = torch.arange(64).float()
    return _stepping(DataLoader(TensorDataset(torch.randn(64, 3), values), 8))


def epoch_of_two_batches():
    return _stepping(DataLoader(TensorDataset(torch.randn(64, 3), LABELS), 32))


def dataset_that_draws_by_itself():
    class Drawn(Dataset):
        def __init__(self):
            self.samples, self.targets = torch.randn(64, 3), LABELS

        def __len__(self):
            return 64

        def __getitem__(self, index):
            index = int(torch.randint(64, ()))
            return self.samples[index], self.targets[index]

    return _stepping(DataLoader(Drawn(), 8))


def stream_that_is_sorted():
    class Stream(IterableDataset):
        def __init__(self):
            self.targets = LABELS

        def __iter__(self):
            return iter([(torch.randn(3), label) for label in self.targets])

    return _stepping(DataLoader(Stream(), 8))


def pairs_of_mixed_classes():
    return _stepping(DataLoader([(torch.randn(3), number % 4) for number in range(64)], 8))


def pairs_of_a_sample_and_a_time():
    return _stepping(DataLoader([(torch.randn(3), number // 16 * 10) for number in range(64)], 8))
