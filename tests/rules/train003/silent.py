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
