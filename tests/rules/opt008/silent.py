import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import accumulating, optimized, trained_once


def divided():
    return accumulating(lambda out, y: ((out - y).square().mean() / 4).backward())


def multiplied():
    return accumulating(lambda out, y: (0.25 * (out - y).square().mean()).backward())


def a_sum():
    loss = torch.nn.MSELoss(reduction="sum")
    return accumulating(lambda out, y: loss(out, y).backward())


def a_gradient_to_begin_with():
    def backward(out, y):
        torch.nn.functional.mse_loss(out, y).backward(torch.tensor(0.25))

    return accumulating(backward)


def adam_divides_by_their_size():
    def backward(out, y):
        torch.nn.functional.mse_loss(out, y).backward()

    return accumulating(backward, torch.optim.Adam)


def gradients_are_divided():
    def finish(model):
        for p in model.parameters():
            p.grad /= 4

    def backward(out, y):
        torch.nn.functional.mse_loss(out, y).backward()

    return accumulating(backward, finish=finish)


def clipped():
    def backward(out, y):
        torch.nn.functional.mse_loss(out, y).backward()

    return accumulating(
        backward, finish=lambda model: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    )


def losses_of_one_batch():
    loader = DataLoader(TensorDataset(torch.randn(16, 8)), batch_size=4)
    model, optimizer = optimized(torch.nn.Linear(8, 4))

    def step():
        for (x,) in loader:
            optimizer.zero_grad()
            for task in range(4):
                model(x)[:, task].square().mean().backward()
            optimizer.step()

    return step


def one_backward_a_step():
    loader = DataLoader(TensorDataset(torch.randn(16, 8)), batch_size=4)
    model, optimizer = optimized(torch.nn.Linear(8, 4))

    def step():
        for (x,) in loader:
            trained_once(model, optimizer, x)

    return step


def halves_of_a_batch_beside_other_loaders():
    data = TensorDataset(torch.randn(16, 8))
    loaders = [DataLoader(data, batch_size=4) for _ in range(3)]
    model, optimizer = optimized(torch.nn.Linear(8, 4))

    def step():
        for (x,), _, _ in zip(*loaders, strict=True):
            optimizer.zero_grad()
            for half in x.chunk(2):
                model(half).square().mean().backward()
            optimizer.step()

    return step


def weighted_losses_divided_together():
    def backward(out, y):
        loss = torch.nn.functional.mse_loss(out, y) + 0.1 * out.square().mean()
        (loss / 4).backward()

    return accumulating(backward)


def a_sum_over_all_samples_of_the_step():
    def backward(out, y):
        (torch.nn.functional.mse_loss(out, y, reduction="sum") / (4 * len(y))).backward()

    return accumulating(backward)


def smoothed_labels_divided():
    def backward(out, y):
        loss = torch.nn.functional.cross_entropy(out, y.argmax(1), label_smoothing=0.1)
        (loss / 4).backward()

    return accumulating(backward)


def divided_by_a_tensor():
    count = torch.tensor(4.0)

    def backward(out, y):
        (torch.nn.functional.mse_loss(out, y) / count).backward()

    return accumulating(backward)
