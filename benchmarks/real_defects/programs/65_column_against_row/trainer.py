"""Regression of a table, with a loss function handed to the epoch's loop."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(1024, 10)
y = x @ torch.randn(10) + 0.1 * torch.randn(1024)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
loss_func = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)


def batches():
    while True:
        yield from loader


stream = batches()


def step():
    model.train()
    xb, yb = next(stream)
    loss = loss_func(model(xb), yb)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
