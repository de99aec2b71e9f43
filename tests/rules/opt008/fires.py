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


def a_mean_with_a_weight():
    def backward(out, y):
        (0.5 * torch.nn.functional.mse_loss(out, y)).backward()  # OPT008

    return _accumulating(backward)


def a_loss_and_a_part_of_another():
    def backward(out, y):
        loss = torch.nn.functional.mse_loss(out, y) + 0.1 * out.square().mean()
        loss.backward()  # OPT008

    return _accumulating(backward)


def a_mean_over_the_batch_alone():
    def backward(out, y):
        logs = out.log_softmax(1)
        loss = torch.nn.functional.kl_div(logs, y.softmax(1), reduction="batchmean")
        loss.backward()  # OPT008

    return _accumulating(backward)


def smoothed_labels():
    def backward(out, y):
        loss = torch.nn.functional.cross_entropy(out, y.argmax(1), label_smoothing=0.1)
        loss.backward()  # OPT008

    return _accumulating(backward)
