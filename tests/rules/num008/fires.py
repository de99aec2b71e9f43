"""NUM008 must report exactly the marked lines."""

import torch
from torch import nn
from torch.nn import functional as F


def _trained(model, loss_of):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()

    return step


def log_of_a_sigmoid():
    model = nn.Linear(8, 1)
    return _trained(model, lambda: -torch.log(torch.sigmoid(model(torch.ones(4, 8)) - 40)).mean())  # NUM008


def log_of_a_sigmoid_in_small_scores_is_a_note():
    model = nn.Linear(8, 1)

    def loss():
        probability = model(torch.ones(4, 8)).sigmoid()
        return -probability.log().mean()  # NUM008

    return _trained(model, loss)


def log_of_chosen_probabilities():
    model, target = nn.Linear(8, 4), torch.tensor([0, 1, 2, 3])

    def loss():
        rows = F.softmax(model(torch.ones(4, 8)) + torch.tensor([0.0, 30.0, 60.0, 0.0]), dim=-1)
        return -torch.log(rows[torch.arange(4), target]).mean()  # NUM008

    return _trained(model, loss)


def log_of_a_softmax_in_half():
    model = nn.Linear(8, 4)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            score = model(torch.ones(4, 8)) + torch.tensor([0.0, 9.0, 4.0, 0.0]).half()
            return -torch.log(torch.softmax(score, -1)).float().mean()  # NUM008

    return _trained(model, loss)


def log_of_a_sum_of_exponentials():
    model = nn.Linear(8, 4)
    return _trained(model, lambda: torch.log(torch.exp(model(torch.ones(4, 8)) + 30).sum(-1)).mean())  # NUM008


def exp_near_its_overflow():
    model = nn.Linear(8, 4)

    def loss():
        weights = torch.exp(model(torch.ones(4, 8)) + 60)  # NUM008
        return (weights / weights.sum(-1, keepdim=True))[:, 0].mean()

    return _trained(model, loss)


def exp_in_half_near_its_overflow():
    model = nn.Linear(8, 4)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            weights = torch.exp(model(torch.ones(4, 8)) + 8)  # NUM008
        return (weights.float() / 1e4).mean()

    return _trained(model, loss)
