"""OPT008 must name the marked lines."""

import torch
from torch.utils.data import DataLoader, TensorDataset


def _accumulating(backward, make=torch.optim.SGD, finish=lambda model: None):
    loader = DataLoader(TensorDataset(torch.randn(16, 8), torch.randn(16, 4)), batch_size=2)
    model = torch.nn.Linear(8, 4)
    optimizer = make(model.parameters(), lr=1e-3)

    def step():
        for number, (x, y) in enumerate(loader):
            backward(model(x), y)
            if number % 4 == 3:
                finish(model)
                optimizer.step()
                optimizer.zero_grad()

    return step


def a_loss_of_torch():
    def backward(out, y):
        torch.nn.functional.mse_loss(out, y).backward()  # OPT008

    return _accumulating(backward)


def a_mean_and_a_sum_of_means():
    def backward(out, y):
        loss = torch.nn.functional.mse_loss(out, y) + out.abs().mean()
        loss.backward()  # OPT008

    return _accumulating(backward)
