import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.train026.fires import _attending, _picking

from tests.rules.programs import losses


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


def _picked(scores_of):
    return losses(_picking)(lambda *layers: _loss(scores_of, *layers))()


def _loss(scores_of, candidate, goal, score):
    x, aim = candidate(torch.randn(4, 6, 5)).relu(), goal(torch.randn(4, 3))[:, None]
    return F.cross_entropy(scores_of(x, aim, score), torch.randint(0, 6, (4,)))


def a_goal_in_front_of_a_function_that_is_not_linear():
    return _picked(lambda x, aim, score: score(torch.tanh(x + aim)).squeeze(-1))


def a_goal_that_is_multiplied():
    return _picked(lambda x, aim, score: (score(x * aim) + score(x)).squeeze(-1))


def a_goal_weighed_by_each_candidate():
    return _picked(lambda x, aim, score: (score(x + aim) * torch.arange(6.0)[:, None])[..., 0])


def candidates_that_are_hidden_by_zero():
    def scores(x, aim, score):
        return score(x + aim)[..., 0].masked_fill(torch.rand(4, 6) < 0.5, 0.0)

    return _picked(scores)


def a_goal_in_a_softmax_over_classes():
    def scores(x, aim, score):
        return F.linear(x + aim, score.weight.expand(6, 8)).mean(1)

    return _picked(scores)


@losses(_picking)
def a_sum_that_a_value_reads_too(candidate, goal, score):
    x = candidate(torch.randn(4, 6, 5)).relu() + goal(torch.randn(4, 3))[:, None]
    value = x.mean((1, 2))
    policy = F.cross_entropy(score(x).squeeze(-1), torch.randint(0, 6, (4,)))
    return policy + (value - torch.randn(4)).square().mean()


@losses(_picking)
def scores_whose_sum_is_kept_small(candidate, goal, score):
    x = candidate(torch.randn(4, 6, 5)).relu() + goal(torch.randn(4, 3))[:, None]
    logits = score(x).squeeze(-1)
    return F.cross_entropy(logits, torch.randint(0, 6, (4,))) + logits.logsumexp(-1).square().mean()


@losses(lambda: (nn.Linear(5, 8), nn.Linear(8, 1)))
def a_bias_in_front_of_a_score(candidate, score):
    bias = score.weight.expand(1, 8).cos()
    logits = score(candidate(torch.randn(4, 6, 5)) + bias[None]).squeeze(-1)
    return F.cross_entropy(logits, torch.randint(0, 6, (4,)))
