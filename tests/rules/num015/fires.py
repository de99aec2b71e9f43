import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.rules.programs import optimized, trained_by


def sample_that_a_worker_loads():
    values = torch.ones(800, 4)
    values[40, 1] = float("nan")
    loader = DataLoader(TensorDataset(values), batch_size=4, num_workers=1)
    model, batches = nn.Linear(4, 1), iter(loader)

    def loss():
        (rows,) = next(batches)  # NUM015
        return model(rows).square().mean()

    return trained_by(model, loss)


def target_that_is_missing():
    model, target = nn.Linear(4, 2), torch.tensor([[1.0, float("nan")], [0.0, 1.0]])
    return trained_by(model, lambda: nn.functional.mse_loss(model(torch.ones(2, 4)), target))  # NUM015


def sample_copied_to_the_device__rehearsal():
    values = torch.ones(800, 4)
    values[40, 1] = float("nan")
    model = nn.Linear(4, 1).cuda()
    batches = iter(DataLoader(TensorDataset(values), batch_size=4, pin_memory=True))

    def loss():
        (rows,) = next(batches)  # NUM015
        rows = rows.cuda(non_blocking=True)
        return model(rows).square().mean()

    return trained_by(model, loss)


def forward_of_a_model_behind_a_guard():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

        def forward(self, x):
            return self.body(x)

    net, optimizer = optimized(Net())
    values = torch.rand(64, 8, 4)
    values[4::4, 3] = float("nan")
    batches = iter(values)

    def step():
        optimizer.zero_grad()
        loss = net(next(batches)).square().mean()  # NUM015
        if torch.isfinite(loss):
            loss.backward()
            optimizer.step()

    return step


def sample_that_the_dataset_hands_on():
    class Windows(Dataset):
        def __init__(self, rows):
            self.rows = rows

        def __len__(self):
            return 800

        def __getitem__(self, i):
            row = self.rows[i]
            return row, row.sum()  # NUM015

    values = torch.ones(800, 4)
    values[40, 1] = float("nan")
    model, batches = nn.Linear(4, 1), iter(DataLoader(Windows(values), batch_size=4))

    def loss():
        rows, _ = next(batches)
        return model(rows).square().mean()

    return trained_by(model, loss)
