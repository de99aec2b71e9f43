import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import trained_by


def the_stable_forms():
    model = nn.Linear(8, 4)

    def loss():
        score = model(torch.ones(4, 8)) * 40
        return -F.logsigmoid(score).mean() - torch.log_softmax(score, -1).mean() + torch.logsumexp(score, -1).mean()

    return trained_by(model, loss)


def exp_after_the_maximum_was_subtracted():
    model = nn.Linear(8, 4)

    def loss():
        score = model(torch.ones(4, 8)) * 200
        top = score.amax(-1, keepdim=True)
        return (torch.log(torch.exp(score - top).sum(-1)) + top.squeeze(-1)).mean()

    return trained_by(model, loss)


def metric_without_a_gradient():
    model = nn.Linear(8, 1)

    def loss():
        score = model(torch.ones(4, 8))
        with torch.no_grad():
            torch.log(torch.sigmoid(score - 50)).mean()
            torch.exp(score + 80)
        torch.exp(score.detach() + 80)
        return score.square().mean()

    return trained_by(model, loss)


def scores_that_are_small_in_every_way():
    model = nn.Linear(8, 4)

    def loss():
        rate = torch.exp(model(torch.ones(4, 8)))
        return (rate - torch.log(rate.sum(-1, keepdim=True))).mean()

    return trained_by(model, loss)


def mask_of_minus_infinity_before_exp():
    model = nn.Linear(4, 4)
    later = torch.ones(4, 4).triu(1) > 0

    def loss():
        score = model(torch.eye(4)).masked_fill(later, float("-inf"))
        weights = torch.exp(score - score.amax(-1, keepdim=True))
        return (weights / weights.sum(-1, keepdim=True))[:, 0].mean()

    return trained_by(model, loss)


def protected_by_an_epsilon_that_holds():
    model = nn.Linear(8, 1)
    return trained_by(model, lambda: -torch.log(torch.sigmoid(model(torch.ones(4, 8)) - 40) + 1e-8).mean())


def log_of_counts():
    model, counts = nn.Linear(8, 1), torch.tensor([1e-30, 1.0, 1e30])
    return trained_by(model, lambda: (model(torch.ones(3, 8)).squeeze(-1) * torch.log(counts)).square().mean())


def norms_of_vectors_that_are_zero():
    model, x = nn.Linear(4, 4, bias=False), torch.zeros(2, 4)

    def loss():
        score = model(x)
        apart = torch.cdist(score, score).mean() + F.pairwise_distance(score, score).mean()
        return torch.linalg.vector_norm(score, dim=-1).mean() + score.norm(dim=-1).mean() + apart

    return trained_by(model, loss)


def epsilon_inside_the_root():
    model = nn.Linear(4, 4, bias=False)
    return trained_by(model, lambda: torch.sqrt(model(torch.zeros(2, 4)).square().sum(-1) + 1e-12).mean())


def where_on_both_sides_of_the_division():
    model, x = nn.Linear(4, 1, bias=False), torch.eye(4)
    x[0] = 0

    def loss():
        score = model(x)
        safe = torch.where(score == 0, torch.ones_like(score), score)
        return torch.where(score == 0, torch.zeros_like(score), 1 / safe).mean() * 1e-6

    return trained_by(model, loss)


def gradient_that_a_mask_sets_to_zero():
    model, empty = nn.Linear(4, 4), torch.tensor([True, False, False, False])

    def loss():
        score = model(torch.eye(4)).square().masked_fill(empty, 0.0)
        return torch.sqrt(score)[:, 1:].mean()

    return trained_by(model, loss)


def root_of_zero_that_nobody_differentiates():
    model = nn.Linear(4, 4, bias=False)

    def loss():
        score = model(torch.zeros(2, 4))
        spread = torch.sqrt(score.square().sum(-1))
        return score.square().mean() + spread.detach().mean()

    return trained_by(model, loss)


def zeros_that_are_left_out_by_index():
    model, x = nn.Linear(4, 4, bias=False), torch.eye(4)
    x[0] = 0

    def loss():
        score = model(x).square()
        return torch.sqrt(score[score > 0]).mean()

    return trained_by(model, loss)


def whole_powers_of_zero():
    model = nn.Linear(4, 4, bias=False)
    return trained_by(model, lambda: (model(torch.zeros(2, 4)) ** 2 + model(torch.zeros(2, 4)) ** 1.5).abs().mean())


def logarithms_of_negative_numbers_that_are_left_out():
    model = nn.Linear(4, 4)
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))

    def loss():
        score = model(x)
        return torch.nanmean(torch.log(score)) + score.square().mean()

    return trained_by(model, loss)


def a_negative_number_in_one_step():
    model = nn.Linear(4, 4)
    numbers = iter(range(10_000))

    def loss():
        x = model(torch.ones(2, 4)).square() + 1
        return torch.log(x - (3 if next(numbers) % 3 == 2 else 0) * x.detach()).mean()

    return trained_by(model, loss)
