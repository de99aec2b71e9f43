"""Near misses: GRAPH007 must stay silent on all of these."""

import torch
from torch import nn


def _trunk():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


def state_detached_between_chunks():
    rnn, head = nn.GRU(8, 8, batch_first=True), nn.Linear(8, 1)

    def step():
        state = torch.zeros(1, 4, 8)
        for _ in range(4):
            out, state = rnn(torch.ones(4, 5, 8), state)
            head(out).square().mean().backward()
            state = state.detach()

    return step


def micro_batches_that_share_nothing():
    body = _trunk()

    def step():
        for _ in range(4):
            body(torch.ones(4, 8)).square().mean().backward(retain_graph=True)

    return step


def norms_of_gradients_read_between_two_losses():
    body, norms = _trunk(), []

    def step():
        features = body(torch.ones(4, 8))
        features.mean().backward(retain_graph=True)
        norms[:] = [p.grad.norm() for p in body.parameters()]
        features.std().backward()

    return step


def gradients_projected_for_each_task():
    body = _trunk()
    optimizer = torch.optim.SGD(body.parameters(), lr=0.01)

    def step():
        features, kept = body(torch.ones(4, 8)), []
        for loss in (features.mean(), features.std(), features.amax()):
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            kept.append([p.grad.clone() for p in body.parameters()])

    return step


def a_function_between_that_may_look():
    body, seen = _trunk(), []

    def look():
        seen[:] = [p.grad for p in body.parameters()]

    def step():
        features = body(torch.ones(4, 8))
        features.mean().backward(retain_graph=True)
        look()
        features.std().backward()

    return step


def a_shared_part_that_is_small():
    stem, left, right = nn.Linear(8, 8), _trunk(), _trunk()

    def step():
        x = stem(torch.ones(4, 8))
        a, b = left(x).square().mean(), right(x).square().mean()
        a.backward(retain_graph=True)
        b.backward()

    return step


def a_jacobian_of_each_time_step():
    cell = nn.GRUCell(8, 8)

    def step():
        x, state, states = torch.ones(4, 8, requires_grad=True), torch.zeros(4, 8), []
        for _ in range(4):
            state = cell(x, state)
            states.append(state)
        for each in states:
            torch.autograd.grad(each.sum(), x, retain_graph=True)
        torch.stack(states).mean().backward()

    return step


def gradients_of_each_time_step_read_one_by_one():
    cell, norms = nn.GRUCell(8, 8), []

    def step():
        state, states = torch.zeros(4, 8), []
        for _ in range(4):
            state = cell(torch.ones(4, 8), state)
            states.append(state)
        for each in states:
            cell.zero_grad()
            each.sum().backward(retain_graph=True)
            norms[:] = [p.grad.norm() for p in cell.parameters()]

    return step


def inner_steps_of_meta_learning():
    weight = torch.full((8,), 0.5, requires_grad=True)

    def step():
        fast = weight
        for _ in range(3):
            (grad,) = torch.autograd.grad(fast.square().sum(), fast, create_graph=True)
            fast = fast - 0.1 * grad
        fast.square().sum().backward()

    return step
