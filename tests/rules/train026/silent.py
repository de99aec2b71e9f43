import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import losses
from tests.rules.train026.fires import _attending, _choosing


def _conditioned(norm, shift):
    layer, head, condition = nn.Conv1d(2, 6, 3), nn.Linear(6, 1), nn.Linear(4, 6)

    def step():
        out = norm(layer(torch.randn(3, 2, 9)) + shift(condition(torch.randn(3, 4))))
        head(out.relu().mean(-1)).square().mean().backward()

    return step


def groups_of_several_channels():
    return _conditioned(nn.GroupNorm(2, 6), lambda out: out[..., None])


def batch_norm_of_a_shift_for_each_sample():
    return _conditioned(nn.BatchNorm1d(6), lambda out: out[..., None])


def another_shift_at_each_position():
    ramp = torch.linspace(0, 1, 7)
    return _conditioned(nn.InstanceNorm1d(6), lambda out: out[..., None] * ramp)


@losses(lambda: (nn.Linear(5, 6), nn.Linear(6, 1), nn.Linear(4, 6), nn.LayerNorm(6)))
def a_layer_norm_over_channels(layer, head, condition, norm):
    out = norm(layer(torch.randn(3, 7, 5)) + condition(torch.randn(3, 4))[:, None])
    return head(out.relu()).square().mean()


def biases_of_keys():
    return _attending(lambda products, bias: (products + bias[:, :, None]).softmax(-1))


def biases_of_queries_that_are_clipped():
    """What is clipped is not shifted by the same amount everywhere."""
    return _attending(
        lambda products, bias: (products + bias[..., None]).clamp(-1, 1).softmax(-1)
    )


def biases_of_queries_in_a_softmax_over_queries():
    return _attending(lambda products, bias: (products + bias[..., None]).softmax(2))


def scores_of_users_that_are_kept_small():
    def loss_of(scores, beside, choice):
        scores = scores + beside
        return F.cross_entropy(scores, choice) + 0.01 * scores.logsumexp(-1).square().mean()

    return _choosing(loss_of)


def scores_of_users_that_a_value_reads():
    def loss_of(scores, beside, choice):
        own = scores + beside
        return F.cross_entropy(own + scores.detach(), choice) + own.square().mean()

    return _choosing(loss_of)


def scores_of_users_that_are_multiplied():
    return _choosing(lambda scores, beside, choice: F.cross_entropy(scores * beside, choice))
