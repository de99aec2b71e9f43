import torch
from torch import nn
from torch.nn import functional as F


def _trained(loss):
    model = nn.Linear(8, 1)
    return lambda: loss(model(torch.randn(16, 8)), torch.randn(16, 1), torch.rand(16, 1)).backward()


def before_the_mean__no_note():
    return _trained(lambda out, y, w: (F.mse_loss(out, y, reduction="none") * w).mean())


def all_equal__no_note():
    return _trained(lambda out, y, w: (F.mse_loss(out, y) * torch.ones_like(w)).mean())


def kept_apart__no_note():
    return _trained(lambda out, y, w: (F.mse_loss(out, y) * w)[0, 0])


def a_likelihood_before_the_mean__no_note():
    def loss(out, y, w):
        return (F.poisson_nll_loss(out, y.abs(), reduction="none") * w).sum() / w.sum()

    return _trained(loss)


def a_divergence_that_one_number_scales__no_note():
    def loss(out, y, w):
        return F.kl_div(out.log_softmax(0), y.softmax(0), reduction="batchmean") * w.mean()

    return _trained(loss)


def a_loss_beside_penalties__no_note():
    def loss(out, y, w):
        nll = F.poisson_nll_loss(out, y.abs())
        return (torch.stack([nll, out.square().mean()]) * torch.tensor([1.0, 0.1])).sum()

    return _trained(loss)


def a_focal_loss_of_each_sample__no_note():
    def loss(out, y, w):
        y = (y > 0).float()
        bce = F.binary_cross_entropy_with_logits(out, y, reduction="none")
        return ((0.25 * y + 0.75 * (1 - y)) * (1 - torch.exp(-bce)) ** 2 * bce).mean()

    return _trained(loss)


def a_focal_loss_of_a_mean_without_weights__no_note():
    def loss(out, y, w):
        bce = F.binary_cross_entropy_with_logits(out, (y > 0).float())
        return 0.25 * (1 - torch.exp(-bce)) ** 2 * bce

    return _trained(loss)
