import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import case_of, ignored_from, micro_batches


@case_of(micro_batches, counts=(5, 5, 5, 5))
def equal_counts(out, labels, n):
    return F.cross_entropy(out.flatten(0, 1), labels.flatten()) / 4


@case_of(micro_batches)
def means_weighed_by_their_tokens(out, labels, n):
    share = (labels >= 0).sum() / 44
    return F.cross_entropy(out.flatten(0, 1), labels.flatten()) * share


@case_of(micro_batches, clear=True)
def one_micro_batch_for_each_step(out, labels, n):
    return F.cross_entropy(out.flatten(0, 1), labels.flatten())


def last_batch_is_smaller():
    """Classification: each loss is over whole rows."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        for rows in (8, 8, 3):
            loss = F.cross_entropy(model(torch.randn(rows, 4)), torch.randint(0, 3, (rows,)))
            (loss / 3).backward()
        optimizer.step()

    return step


def two_losses_of_one_batch():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 7))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)

    def step():
        optimizer.zero_grad()
        out = model(torch.randint(0, 9, (2, 12), generator=generator))
        first = F.cross_entropy(out.flatten(0, 1), ignored_from(5, generator).flatten())
        first.backward(retain_graph=True)
        second = F.cross_entropy(out.flatten(0, 1), ignored_from(9, generator).flatten())
        second.backward()
        optimizer.step()

    return step


def picked_tokens_divided_by_all():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 7))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        for masked in (9, 2, 5):
            tokens, chosen = torch.randint(0, 7, (2, 12)), torch.arange(12).expand(2, 12) < masked
            loss = F.cross_entropy(model(tokens)[chosen], tokens[chosen], reduction="sum")
            (loss / 32).backward()
        optimizer.step()

    return step


def last_batch_is_smaller_in_an_order():
    """Rows are picked by their numbers; no mask leaves any out."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        for rows in (8, 8, 3):
            order, y = torch.randperm(rows), torch.randint(0, 3, (rows,))
            (F.cross_entropy(model(torch.randn(rows, 4))[order], y[order]) / 3).backward()
        optimizer.step()

    return step


def fewer_texts_at_the_end_of_an_epoch():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        for rows in (4, 4, 1):
            tokens = torch.randint(0, 9, (rows, 12))
            out = model(tokens[:, :-1]).flatten(0, 1)
            (F.cross_entropy(out, tokens[:, 1:].flatten()) / 3).backward()
        optimizer.step()

    return step


def _on_series(loss_of, long=11):
    """A step on the windows of a series, one backward for each."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        x = torch.randn(4, long, 2)
        y = x[..., :1].cumsum(1)
        for start in range(0, long, 4):
            part = slice(start, start + 4)
            loss_of(model(x[:, part]), y[:, part]).backward()
        optimizer.step()

    return step


@case_of(_on_series)
def windows_weighed_by_their_length(made, target):
    return F.mse_loss(made, target) * (target.shape[1] / 11)


@case_of(_on_series)
def windows_summed_and_divided_by_all(made, target):
    return F.mse_loss(made, target, reduction="sum") / 44


@case_of(_on_series, long=12)
def windows_of_one_length(made, target):
    return F.mse_loss(made, target) / 3


def last_batch_of_a_tensor_is_smaller():
    """Slices of all the data, of which the last are fewer."""
    torch.manual_seed(0)
    model, x = nn.Linear(4, 1), torch.randn(100, 4)
    optimizer, y = torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(100, 1)

    def step():
        optimizer.zero_grad()
        for first in (81, 89, 97):
            rows = slice(first, min(first + 8, 100))
            (F.mse_loss(model(x[rows]), y[rows]) / 3).backward()
        optimizer.step()

    return step


def _on_columns(parts_of, optimized):
    """A step on groups of three, three and two columns, which count the same."""

    def step():
        x = torch.randn(6, 8)
        targets = x.roll(1, 1)
        made = parts_of(x)
        losses = [F.mse_loss(*each) for each in zip(made, targets.split(3, 1), strict=True)]
        optimized.zero_grad()
        (sum(losses) / 3).backward()
        optimized.step()

    return step


def groups_of_columns_of_one_result():
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    return _on_columns(lambda x: model(x).split(3, 1), torch.optim.SGD(model.parameters(), 0.1))


def heads_of_three_kinds_of_targets():
    torch.manual_seed(0)
    trunk, heads = nn.Linear(8, 8), nn.ModuleList(nn.Linear(8, n) for n in (3, 3, 2))
    parameters = [*trunk.parameters(), *heads.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    return _on_columns(lambda x: [head(trunk(x).tanh()) for head in heads], optimizer)


def losses_at_several_scales():
    torch.manual_seed(0)
    model = nn.Conv1d(1, 1, 3, padding=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        x, losses = torch.randn(4, 1, 16), []
        y = x.cumsum(2)
        for scale in (1, 2, 4):
            wanted = F.avg_pool1d(y, scale)
            losses.append(F.mse_loss(model(F.avg_pool1d(x, scale)), wanted))
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()

    return step
