import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import case_of, losses


def _trained(loss):
    model, other = nn.Linear(8, 1), nn.Linear(8, 1)

    def step():
        x, y, data = torch.randn(16, 8), torch.randn(16, 8), torch.randn(16, 1)
        loss(model, other, x, y, data).backward()

    return step


def detached__no_note():
    return _trained(lambda model, other, x, y, r: F.mse_loss(model(x), r + 0.9 * model(y).detach()))


def another_network__no_note():
    return _trained(lambda model, other, x, y, r: F.mse_loss(model(x), r + 0.9 * other(y)))


def two_views__no_note():
    return _trained(lambda model, other, x, y, r: F.mse_loss(model(x), 0.9 * model(y)))


@case_of(_trained)
def an_equation_of_one_output__no_note(model, other, x, y, r):
    u = model(x)
    return (u - (r + 0.1 * u.sin())).square().mean()


def the_output_is_scaled__no_note():
    return _trained(lambda model, other, x, y, r: F.mse_loss(r + 0.9 * model(x), model(y).detach()))


def more_than_a_share__no_note():
    return _trained(lambda model, other, x, y, r: F.mse_loss(model(x), r + 1.5 * model(y)))


@losses(lambda: (nn.Linear(8, 4), nn.Linear(8, 1)))
def advantage_detached__no_note(policy, critic):
    state, returns = torch.randn(16, 8), torch.randn(16)
    error = returns - critic(state).squeeze(-1)
    loss = -(policy(state).log_softmax(1)[:, 0] * error.detach()).mean()
    return loss + error.square().mean()


def one_number_is_added__no_note():
    one = torch.ones(1)
    return _trained(lambda model, other, x, y, r: F.mse_loss(model(x), one + 0.9 * model(y)))


def _distilled(loss):
    stem, early, late = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def step():
        x = stem(torch.randn(6, 8))
        loss(early(x), late(x.relu())).backward()

    return step


@case_of(_distilled)
def a_detached_teacher__no_note(one, two):
    return F.kl_div(one.log_softmax(-1), two.softmax(-1).detach(), reduction="batchmean")


@case_of(_distilled)
def two_that_follow_one_another__no_note(one, two):
    first = F.kl_div(one.log_softmax(-1), two.softmax(-1), reduction="batchmean")
    return first + F.kl_div(two.log_softmax(-1), one.softmax(-1), reduction="batchmean")


@case_of(_distilled)
def an_entropy__no_note(one, two):
    chances, logs = (one / 0.5).softmax(-1), one.log_softmax(-1)
    return -(chances * logs).sum(-1).mean() + F.mse_loss(one, two)


@case_of(_distilled)
def soft_labels_that_are_detached__no_note(one, two):
    return -(two.softmax(-1).detach() * one.log_softmax(-1)).sum(-1).mean()


@case_of(_distilled)
def two_by_hand_that_follow_one_another__no_note(one, two):
    first = -(two.softmax(-1) * one.log_softmax(-1)).sum(-1).mean()
    return first - (one.softmax(-1) * two.log_softmax(-1)).sum(-1).mean()


@losses(lambda: nn.Linear(8, 1))
def returns_of_detached_values__no_note(critic):
    states, rewards, found = torch.randn(7, 16, 8), torch.randn(6, 16), []
    values = critic(states).squeeze(-1)
    carried = values[-1].detach()
    for reward, after in zip(rewards.flip(0), values[1:].detach().flip(0), strict=True):
        carried = reward + 0.97 * (0.1 * after + 0.9 * carried)
        found.append(carried)
    return (torch.stack(found[::-1]) - values[:-1]).square().mean()
