"""SYNC005 must report exactly the marked lines."""

import torch
from torch import nn


def hard_examples_by_mask():
    model = nn.Linear(8, 1)

    def step():
        error = model(torch.linspace(-1, 1, 32).view(4, 8)).square()
        error[error >= error.mean()].mean().backward()  # SYNC005

    return step


def indices_of_nonzero():
    model = nn.Linear(8, 1)

    def step():
        out = model(torch.ones(4, 8))
        rows = out.detach().nonzero()  # SYNC005
        (out.mean() * rows.shape[0]).backward()

    return step


def one_argument_where():
    model = nn.Linear(8, 1)

    def step():
        out = model(torch.ones(4, 8))
        rows = torch.where(out.detach() > -9)  # SYNC005
        out[rows].mean().backward()

    return step


def masked_select_of_errors():
    model = nn.Linear(8, 1)

    def step():
        out = model(torch.ones(4, 8))
        torch.masked_select(out, out > -9).mean().backward()  # SYNC005

    return step


def distinct_predictions():
    model, seen = nn.Linear(8, 3), {}

    def step():
        out = model(torch.ones(4, 8))
        seen["classes"] = torch.unique(out.argmax(1))  # SYNC005
        out.mean().backward()

    return step


def counted_predictions():
    model, seen = nn.Linear(8, 3), {}

    def step():
        out = model(torch.ones(4, 8))
        seen["counts"] = torch.bincount(out.argmax(1))  # SYNC005
        out.mean().backward()

    return step
