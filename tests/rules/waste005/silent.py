import itertools
import torch
import torch.nn.functional as F
from torch import nn

from tests.rules.programs import trained_by, trained_with


def gradient_cache():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32))

    def loss():
        x = torch.randn(64, 64)
        with torch.no_grad():
            reps = model(x)
        reps = reps.requires_grad_()
        F.cross_entropy(reps @ reps.t(), torch.arange(64)).backward()
        return (model(x) * reps.grad).sum()

    return trained_by(model, loss)


def gradient_of_the_input_and_then_the_loss():
    model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 8))

    def sensitivity(x):
        x = x.detach().requires_grad_(True)
        (given,) = torch.autograd.grad(model(x).sum(), x)
        return given.norm(dim=1).detach()

    def loss():
        x, y = torch.randn(64, 32), torch.randn(64, 8)
        weight = 1.0 / (1.0 + sensitivity(x))
        return (weight * (model(x) - y).square().mean(1)).mean()

    return trained_with(torch.optim.Adam(model.parameters()), loss)


def critic_on_the_attached_and_the_detached_sample():
    maker, critic = nn.Linear(16, 64), nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))
    opt = torch.optim.SGD([*maker.parameters(), *critic.parameters()], lr=0.01)

    def step():
        made, true = maker(torch.randn(64, 16)), torch.randn(64, 64)
        fools = F.softplus(-critic(made)).mean()
        told = F.softplus(critic(made.detach())).mean() + F.softplus(-critic(true)).mean()
        opt.zero_grad()
        maker_gradients = torch.autograd.grad(fools, list(maker.parameters()), retain_graph=True)
        told.backward()
        for parameter, gradient in zip(maker.parameters(), maker_gradients):
            parameter.grad = gradient
        opt.step()

    return step


def evaluation_of_the_input_that_is_trained_on():
    first, last = nn.Linear(64, 256), nn.Linear(256, 256)
    x, seen = torch.randn(128, 64), []

    def net(training):
        h = first(x).relu()
        return last(F.dropout(h, 0.5) if training else h).square().mean()

    def loss():
        with torch.no_grad():
            seen.append(net(False).item())
        return net(True)

    return trained_with(torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.1), loss)


def evaluation_with_gradients_on():
    first, last = nn.Linear(64, 256), nn.Linear(256, 256)
    x, seen = torch.randn(128, 64), []

    def net(training):
        h = first(x).relu()
        return last(F.dropout(h, 0.5) if training else h).square().mean()

    def loss():
        seen.append(net(False).item())
        return net(True)

    return trained_with(torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.1), loss)


def _evaluated_now_and_then(evaluate, dropped=0.0):
    model = nn.Sequential(nn.Linear(64, 128), nn.Dropout(dropped), nn.Linear(128, 64))
    other = nn.Linear(64, 64)
    optimizer, steps = torch.optim.SGD([*model.parameters(), *other.parameters()]), itertools.count(1)
    table = torch.randn(600, 64)

    def step():
        optimizer.zero_grad()
        rows = table[torch.randint(600, (32,))]
        (model(rows) - other(rows)).square().mean().backward()
        optimizer.step()
        if next(steps) % 11 == 0:
            with torch.no_grad():
                evaluate(model, other, table)

    return step


def catalogue_encoded_once_for_all_queries():
    def evaluate(model, other, table):
        items = model(table)
        return [(items @ other(query)).topk(5).indices for query in torch.randn(40, 64)]

    return _evaluated_now_and_then(evaluate)


def passes_with_dropout_for_a_variance():
    def evaluate(model, _, table):
        return torch.stack([model(table) for _ in range(20)]).var(0)

    return _evaluated_now_and_then(evaluate, dropped=0.2)


def states_that_follow_one_another():
    def evaluate(model, _, table):
        for _ in range(20):
            table = table + 0.1 * model(table)

    return _evaluated_now_and_then(evaluate)


def a_small_part_that_is_given_the_same():
    def evaluate(model, other, table):
        for query in torch.randn(20, 64):
            other(table[0])
            model(table + query)

    return _evaluated_now_and_then(evaluate)


def weights_that_change_between_the_calls():
    def evaluate(model, _, table):
        for _ in range(20):
            model(table)
            for each in model.parameters():
                each.mul_(0.999)

    return _evaluated_now_and_then(evaluate)
