import torch

from tests.rules.programs import accumulating, optimized


def a_loss_of_torch():
    def backward(out, y):
        torch.nn.functional.mse_loss(out, y).backward()  # OPT008

    return accumulating(backward)


def a_mean_with_a_weight():
    def backward(out, y):
        (0.5 * torch.nn.functional.mse_loss(out, y)).backward()  # OPT008

    return accumulating(backward)


def a_mean_over_the_batch_alone():
    def backward(out, y):
        logs = out.log_softmax(1)
        loss = torch.nn.functional.kl_div(logs, y.softmax(1), reduction="batchmean")
        loss.backward()  # OPT008

    return accumulating(backward)


def smoothed_labels():
    def backward(out, y):
        loss = torch.nn.functional.cross_entropy(out, y.argmax(1), label_smoothing=0.1)
        loss.backward()  # OPT008

    return accumulating(backward)


def an_epoch_that_ends_with_one_alone():
    rows = torch.utils.data.TensorDataset(torch.randn(10, 8), torch.randn(10, 4))
    loader = torch.utils.data.DataLoader(rows, batch_size=2)
    model, optimizer = optimized(torch.nn.Linear(8, 4))

    def step():
        for number, (x, y) in enumerate(loader):
            torch.nn.functional.mse_loss(model(x), y).backward()  # OPT008
            if number % 2 or number == 4:
                optimizer.step()
                optimizer.zero_grad()

    return step
