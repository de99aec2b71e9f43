import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.cfg011.fires import _evaluated
from tests.rules.programs import optimized, trained_once


class _Net(nn.Module):
    def __init__(self, drop):
        super().__init__()
        self.one, self.dropout, self.drop = nn.Linear(8, 8), nn.Dropout(0.5), drop

    def forward(self, x):
        return self.drop(self, self.one(x))


def told_the_mode():
    return _evaluated(_Net(lambda net, x: F.dropout(x, 0.5, net.training)))


def a_layer_of_the_model():
    return _evaluated(_Net(lambda net, x: net.dropout(x)))


def a_share_of_zero():
    return _evaluated(_Net(lambda net, x: F.dropout(x, 0.5 if net.training else 0.0)))


def on_purpose_in_each_forward():
    return _evaluated(_Net(lambda net, x: F.dropout(x, 0.5, training=True)))


def monte_carlo_dropout():
    model, optimizer = optimized(_Net(lambda net, x: net.dropout(x)))

    def step():
        model.train()
        trained_once(model, optimizer, torch.ones(4, 8))
        model.eval()
        model.dropout.train()
        with torch.no_grad():
            torch.stack([model(torch.ones(4, 8)) for _ in range(3)]).var(0)

    return step


def mc_samples_are_asked_for():
    def mc_dropout(net, x):
        return F.dropout(x, 0.5)

    return _evaluated(_Net(mc_dropout))


def a_network_that_nothing_trains():
    model, other = nn.Linear(8, 8), _Net(lambda net, x: F.dropout(x, 0.5)).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        trained_once(model, optimizer, torch.ones(4, 8))
        with torch.no_grad():
            other(torch.ones(4, 8))

    return step


def noise_on_the_input_of_a_student():
    model, optimizer = optimized(nn.Linear(8, 8))

    def step():
        with torch.no_grad():
            x = F.dropout(torch.ones(4, 8), 0.1)
        trained_once(model, optimizer, x)

    return step


def asked_for_by_an_expression():
    return _evaluated(_Net(lambda net, x: F.dropout(x, 0.5, not torch.is_grad_enabled())))
