import torch
from torch.nn import functional as F

from tests.rules.programs import losses
from tests.rules.train032.fires import _encoder, _half_away, _noisy, _scores


@losses(_encoder)
def halves_and_their_targets(encoder):
    x = torch.randn(8, 6)
    return F.cross_entropy(_scores(encoder(torch.cat([_noisy(x), _noisy(x)]))), _half_away(16))


@losses(_encoder)
def neighbors_and_their_targets(encoder):
    x = torch.randn(8, 6)
    views = torch.stack([_noisy(x), _noisy(x)], dim=1).flatten(0, 1)
    return F.cross_entropy(_scores(encoder(views)), torch.arange(16) ^ 1)


@losses(_encoder)
def a_diagonal_that_is_written(encoder):
    x = torch.randn(8, 6)
    z = encoder(torch.cat([_noisy(x), _noisy(x)]))
    scores = z @ z.T
    scores[torch.eye(16, dtype=torch.bool)] = -1e9
    return F.cross_entropy(scores, _half_away(16))


@losses(_encoder)
def a_diagonal_that_is_subtracted(encoder):
    x = torch.randn(8, 6)
    z = encoder(torch.cat([_noisy(x), _noisy(x)]))
    return F.cross_entropy(z @ z.T - 1e9 * torch.eye(16), _half_away(16))


@losses(_encoder)
def two_towers(encoder):
    one, two = encoder(torch.randn(8, 6)), encoder(torch.randn(8, 6))
    return F.cross_entropy(one @ two.T, torch.arange(8))


@losses(_encoder)
def each_row_chooses_a_parent_or_itself(encoder):
    z = encoder(torch.randn(8, 6))
    return F.cross_entropy(z @ z.T, torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]))


@losses(_encoder)
def two_samples_alone(encoder):
    x = torch.randn(1, 6)
    views = torch.stack([_noisy(x), _noisy(x)], dim=1).flatten(0, 1)
    return F.cross_entropy(_scores(encoder(views)), _half_away(2))
