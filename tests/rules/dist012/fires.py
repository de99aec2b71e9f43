import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset

from tests.rules.programs import trained_once


def _model():
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def shares_cut_by_hand__processes():
    model, optimizer = _model()
    data = TensorDataset(torch.randn(17, 4))
    share = Subset(data, range(dist.get_rank(), 17, 2))
    loader = DataLoader(share, batch_size=4)  # DIST012

    def step():
        for (x,) in loader:
            trained_once(model, optimizer, x)

    return step


def files_of_a_rank_behind_enumerate__processes():
    model, optimizer = _model()
    shards = [torch.randn(8, 4), torch.randn(6, 4)]
    loader = DataLoader(  # DIST012
        TensorDataset(shards[dist.get_rank()]), batch_size=2, shuffle=True
    )

    def update(x):
        trained_once(model, optimizer, x)

    def step():
        for number, (x,) in enumerate(loader):
            if number >= 0:
                update(x)

    return step
