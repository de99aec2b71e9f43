import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import losses


def _net(classes=3):
    return nn.Conv2d(2, classes, 3, padding=1)


def _batch(classes=3, void=255):
    mask = torch.randint(0, classes, (4, 8, 8))
    mask[:, :, :2] = void
    return torch.randn(4, 2, 8, 8), mask


def _dice(probs, wanted, dims=(0, 2, 3)):
    overlap = (probs * wanted).sum(dims)
    return 1 - (2 * overlap / (probs.sum(dims) + wanted.sum(dims) + 1e-6)).mean()


@losses(_net)
def dice_of_a_clamped_mask(net):
    x, mask = _batch()
    scores = net(x)
    wanted = F.one_hot(mask.clamp(max=2), 3).permute(0, 3, 1, 2).float()  # TRAIN033
    return F.cross_entropy(scores, mask, ignore_index=255) + _dice(scores.softmax(1), wanted)


@losses(_net)
def squared_error_beside_log_probabilities(net):
    x, mask = _batch()
    scores = net(x)
    known = torch.where(mask == 255, 0, mask)  # TRAIN033
    wanted = F.one_hot(known, 3).movedim(-1, 1).float()
    fits = F.nll_loss(scores.log_softmax(1), mask, ignore_index=255)
    return fits + 0.1 * F.mse_loss(scores.softmax(1), wanted)


@losses(lambda: nn.Linear(5, 4))
def tokens_of_a_prompt(head):
    labels = torch.randint(1, 4, (6, 7))
    labels[:, :3] = -100
    scores = head(torch.randn(6, 7, 5)).flatten(0, 1)
    wanted = F.one_hot(labels.flatten().clamp(min=1), 4).float()  # TRAIN033
    brier = (scores.softmax(-1) - wanted).square().mean()
    return F.cross_entropy(scores, labels.flatten()) + brier
