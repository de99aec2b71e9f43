import contextlib

import torch
from torch import nn


def one_diagnostic_step():
    model, count = nn.Linear(8, 1), [0]

    def step():
        count[0] += 1
        with torch.autograd.detect_anomaly() if count[0] == 5 else contextlib.nullcontext():
            model(torch.ones(4, 8)).mean().backward()

    return step


def switched_off_explicitly():
    model = nn.Linear(8, 1)

    def step():
        with torch.autograd.set_detect_anomaly(False):
            model(torch.ones(4, 8)).mean().backward()

    return step


def on_for_a_forward_without_backward():
    model = nn.Linear(8, 1)

    def step():
        with torch.autograd.set_detect_anomaly(True), torch.no_grad():
            model(torch.ones(4, 8)).mean()
        model(torch.ones(4, 8)).mean().backward()

    return step
