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
def alternating_rows_that_are_put_into_halves(encoder):
    x = torch.randn(8, 6)
    z = encoder(torch.stack([_noisy(x), _noisy(x)], dim=1).flatten(0, 1))
    return F.cross_entropy(_scores(torch.cat([z[0::2], z[1::2]])), _half_away(16))


@losses(_encoder)
def views_stacked_first(encoder):
    x = torch.randn(8, 6)
    views = torch.stack([_noisy(x), _noisy(x)]).flatten(0, 1)
    return F.cross_entropy(_scores(encoder(views)), _half_away(16))


@losses(_encoder)
def two_batches_with_both_views_in_each(encoder):
    one, two = (torch.randn(4, 1, 6).expand(4, 2, 6).reshape(8, 6) for _ in range(2))
    views = torch.cat([_noisy(one), _noisy(two)])
    return F.cross_entropy(_scores(encoder(views)), torch.arange(16) ^ 1)


@losses(_encoder)
def two_views_and_rows_put_back_by_an_index(encoder):
    x = torch.randn(8, 6)
    views = torch.stack([_noisy(x), _noisy(x)], dim=1).flatten(0, 1)
    order = torch.arange(16).view(8, 2).T.flatten()
    return F.cross_entropy(_scores(encoder(views[order])), _half_away(16))


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
