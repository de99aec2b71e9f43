import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.rules.programs import trained_by


def _training(batches):
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    return trained_by(model, lambda: model(next(batches)).square().mean())


def shuffled_by_one_seed__processes():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(256, 4))
    loader = DataLoader(data, batch_size=4, shuffle=True)  # DIST008
    return _training(x for (x,) in loader)


class _Stream(IterableDataset):
    def __iter__(self):
        drawn = torch.Generator().manual_seed(7)
        while True:
            yield torch.randn(4, generator=drawn)


def a_stream_that_no_rank_divides__processes():
    loader = DataLoader(_Stream(), batch_size=4)  # DIST008
    return _training(iter(loader))
