"""SYNC002 must report exactly the marked lines."""

import torch
from torch import nn


def nan_guard():
    model = nn.Linear(8, 1)

    def step():
        loss = model(torch.ones(4, 8)).mean()
        if torch.isnan(loss):  # SYNC002
            raise ValueError("loss is NaN")
        loss.backward()

    return step


def best_loss_kept_by_comparison():
    model, best = nn.Linear(8, 1), [torch.tensor(1e9)]

    def step():
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        best[0] = loss.detach() if loss < best[0] else best[0]  # SYNC002

    return step


def assertion_on_the_output():
    model = nn.Linear(8, 1)

    def step():
        out = model(torch.ones(4, 8))
        assert out.isfinite().all()  # SYNC002
        out.mean().backward()

    return step


def loop_until_converged():
    model = nn.Linear(8, 1)

    def step():
        error = model(torch.ones(4, 8)).square().mean() + 1
        while error > 0.5:  # SYNC002
            error = error / 2
        error.backward()

    return step


def truth_of_a_condition():
    model, flags = nn.Linear(8, 1), []

    def step():
        loss = model(torch.ones(4, 8)).mean()
        flags.append(bool(loss > 0))  # SYNC002
        loss.backward()

    return step


def negated_condition():
    model, flags = nn.Linear(8, 1), []

    def step():
        loss = model(torch.ones(4, 8)).mean()
        flags.append(not (loss > 0))  # SYNC002
        loss.backward()

    return step


def larger_of_two_losses():
    model = nn.Linear(8, 2)

    def step():
        a, b = model(torch.ones(4, 8)).mean(0)
        max(a, b).backward()  # SYNC002

    return step
