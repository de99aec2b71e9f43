import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import case_of


def _labels(generator, kept):
    labels = torch.randint(0, 7, (2, 12), generator=generator)
    labels[:, kept:] = -100
    return labels


def _accumulated(loss_of, counts=(12, 2, 7, 1)):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 7))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)

    def step():
        optimizer.zero_grad()
        for kept in counts:
            tokens = torch.randint(0, 9, (2, 12), generator=generator)
            loss_of(model(tokens), _labels(generator, kept), len(counts)).backward()
        optimizer.step()

    return step


@case_of(_accumulated)
def cross_entropy_divided_by_the_number_of_micro_batches(out, labels, n):
    return F.cross_entropy(out.flatten(0, 1), labels.flatten()) / n  # TRAIN003


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
    return _accumulated(lambda out, labels, n: criterion(out.transpose(1, 2), labels))  # TRAIN003


@case_of(_accumulated)
def own_mean_over_a_mask(out, labels, n):
    mask = (labels >= 0).float()
    each = F.cross_entropy(out.transpose(1, 2), labels, reduction="none")
    return (each * mask).sum() / mask.sum() / n  # TRAIN003


@case_of(_accumulated)
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
