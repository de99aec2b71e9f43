import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import losses


def _encoder():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))


def _noisy(x):
    return x + 0.1 * torch.randn_like(x)


def _half_away(rows):
    return (torch.arange(rows) + rows // 2) % rows


def _scores(z, temperature=0.2):
    z = F.normalize(z, dim=-1)
    scores = z @ z.T / temperature
    return scores.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))


@losses(_encoder)
def rows_that_may_choose_themselves(encoder):
    x = torch.randn(8, 6)
    z = F.normalize(encoder(torch.cat([_noisy(x), _noisy(x)])), dim=1)
    scores = torch.mm(z, z.t())  # TRAIN032
    return F.cross_entropy(scores / 0.1, _half_away(16))


@losses(_encoder)
def cosines_with_themselves(encoder):
    x = torch.randn(8, 6)
    z = encoder(torch.cat([_noisy(x), _noisy(x)]))
    scores = F.cosine_similarity(z[:, None], z[None], dim=-1)  # TRAIN032
    return F.cross_entropy(scores * 5.0, _half_away(16))


@losses(_encoder)
def neighbors_that_may_choose_themselves(encoder):
    x = torch.randn(8, 6)
    z = encoder(torch.stack([_noisy(x), _noisy(x)], 1).flatten(0, 1))
    return F.cross_entropy(z @ z.T * 5.0, torch.arange(16) ^ 1)  # TRAIN032
