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
