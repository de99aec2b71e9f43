import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import case_of, micro_batches


def texts_of_another_length_in_each_micro_batch():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(tokens):
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def step():
        optimizer.zero_grad()
        for long in (4, 30, 9):
            loss = loss_of(torch.randint(0, 9, (2, long))) / 3  # TRAIN003
            loss.backward()
        optimizer.step()

    return step


def module_of_a_loss_not_divided():
    criterion = nn.CrossEntropyLoss(ignore_index=-100)
    return micro_batches(lambda out, labels, n: criterion(out.transpose(1, 2), labels))  # TRAIN003


@case_of(micro_batches)
def own_mean_over_a_mask(out, labels, n):
    mask = (labels >= 0).float()
    each = F.cross_entropy(out.transpose(1, 2), labels, reduction="none")
    return (each * mask).sum() / mask.sum() / n  # TRAIN003


@case_of(micro_batches)
def mean_of_what_a_mask_picks(out, labels, n):
    each = F.cross_entropy(out.transpose(1, 2), labels, reduction="none")
    return each[labels >= 0].mean() * (1 / n)  # TRAIN003


def tokens_picked_before_cross_entropy():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 7))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        for masked in (9, 2, 5):
            tokens, chosen = torch.randint(0, 7, (2, 12)), torch.arange(12).expand(2, 12) < masked
            loss = F.cross_entropy(model(tokens)[chosen], tokens[chosen])
            (loss / 3).backward()  # TRAIN003
        optimizer.step()

    return step


class _Filter(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.out = nn.GRU(2, 6, batch_first=True), nn.Linear(6, 1)

    def forward(self, x, state=None):
        h, state = self.layer(x, state)
        return self.out(h), state.detach()


def windows_of_a_series_with_a_backward_each():
    model = _Filter()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        x, state = torch.randn(4, 11, 2), None
        targets = x[..., :1].cumsum(1)
        for part, target in zip(x.split(4, 1), targets.split(4, 1), strict=True):
            made, state = model(part, state)
            (F.l1_loss(made, target) / 3).backward()  # TRAIN003
        optimizer.step()

    return step


def windows_of_a_series_that_are_summed():
    model = _Filter()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        x, state, losses = torch.randn(4, 17, 2), None, []
        y = (x[..., :1] * 3).cumsum(1)
        for start in range(0, 17, 5):
            made, state = model(x[:, start : start + 5], state)
            error = made.squeeze(-1) - y[:, start : start + 5].squeeze(-1)
            losses.append(error.square().mean())  # TRAIN003
        loss = torch.stack(losses).mean() + 1e-4 * model.out.weight.square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def batch_that_its_micro_batches_do_not_divide():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        data, total = torch.randn(15, 4), 0.0
        x, labels = data[:-1], data.argmax(1).clamp(max=2)[1:]
        for first in range(0, 14, 4):
            rows = slice(first, first + 4)
            total = total + F.cross_entropy(model(x[rows]), labels[rows])  # TRAIN003
        optimizer.zero_grad()
        (total / 4).backward()
        optimizer.step()

    return step
