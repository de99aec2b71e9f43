import torch
from torch import nn


def hard_examples_by_mask__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        error = model(torch.linspace(-1, 1, 32, device="cuda").view(4, 8)).square()
        error[error >= error.mean()].mean().backward()  # SYNC005

    return step


def masked_select_of_errors__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        out = model(torch.ones(4, 8, device="cuda"))
        torch.masked_select(out, out > -9).mean().backward()  # SYNC005

    return step


def distinct_predictions__rehearsal():
    model, seen = nn.Linear(8, 3, device="cuda"), {}

    def step():
        out = model(torch.ones(4, 8, device="cuda"))
        seen["classes"] = torch.unique(out.argmax(1))  # SYNC005
        out.mean().backward()

    return step


def counted_predictions__rehearsal():
    model, seen = nn.Linear(8, 3, device="cuda"), {}

    def step():
        out = model(torch.ones(4, 8, device="cuda"))
        seen["counts"] = torch.bincount(out.argmax(1))  # SYNC005
        out.mean().backward()

    return step
