import torch
from torch import nn


def _stepping(loss_of, rows=200, size=16):
    net = nn.Linear(size, size)
    return lambda: loss_of(net(torch.randn(rows, size)), torch.randn(rows, size)).backward()


def distances_by_cdist():
    return _stepping(lambda x, y: torch.cdist(x, y).pow(2).mean())


def norms_and_a_product_of_matrices():
    def loss_of(x, y):
        both = x.pow(2).sum(1)[:, None] + y.pow(2).sum(1)[None]
        return torch.addmm(both, x, y.T, alpha=-2).clamp(min=0).mean()

    return _stepping(loss_of)


def directions_are_used_too():
    def loss_of(x, y):
        gap = x[:, None] - y[None]
        far = gap.pow(2).sum(-1)
        return (gap / (1 + far)[..., None]).sum(1).square().mean()

    return _stepping(loss_of)


def weights_on_the_squares():
    weights = torch.rand(16)
    return _stepping(lambda x, y: ((x[:, None] - y[None]).pow(2) * weights).sum(-1).mean())


def points_in_space():
    return _stepping(lambda x, y: (x[:, None] - y[None]).pow(2).sum(-1).mean(), 700, 3)


def few_rows():
    return _stepping(lambda x, y: (x[:, None] - y[None]).pow(2).sum(-1).mean(), 40)


def rows_against_their_mean():
    def loss_of(x, y):
        return (x - x.mean(0, keepdim=True)).pow(2).sum(-1).mean() + y.mean()

    return _stepping(loss_of, 20_000)


def sum_over_the_partners():
    return _stepping(lambda x, y: (x[:, None] - y[None]).pow(2).sum(1).sqrt().mean())


def largest_of_the_differences():
    return _stepping(lambda x, y: (x[:, None] - y[None]).abs().amax(-1).mean())
