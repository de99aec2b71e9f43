"""SYNC003 must report exactly the marked lines."""

import contextlib
import io

import torch
from torch import nn


def outputs_collected_on_the_host():
    model, outputs = nn.Linear(8, 1), []

    def step():
        out = model(torch.ones(4, 8))
        out.mean().backward()
        outputs[:] = [out.detach().cpu()]  # SYNC003

    return step


def predictions_as_a_list():
    model, predictions = nn.Linear(8, 3), []

    def step():
        out = model(torch.ones(4, 8))
        predictions[:] = out.argmax(1).tolist()  # SYNC003
        out.mean().backward()

    return step


def metric_in_numpy():
    model, metrics = nn.Linear(8, 1), {}

    def step():
        out = model(torch.ones(4, 8))
        metrics["out"] = out.detach().numpy()  # SYNC003
        out.mean().backward()

    return step


def moved_by_name():
    model, kept = nn.Linear(8, 1), {}

    def step():
        out = model(torch.ones(4, 8))
        kept["out"] = out.detach().to("cpu")  # SYNC003
        out.mean().backward()

    return step


def loss_printed():
    model = nn.Linear(8, 1)

    def step():
        loss = model(torch.ones(4, 8)).mean()
        loss.backward()
        with contextlib.redirect_stdout(io.StringIO()):
            print(loss)  # SYNC003

    return step


def copied_and_read_on_one_line():
    model, seen = nn.Linear(8, 1), []

    def step():
        loss = model(torch.ones(4, 8)).mean()
        loss.backward()
        seen.append(loss.detach().cpu().item())  # SYNC003

    return step


def copy_of_what_a_library_checked():
    model = nn.Linear(8, 3)
    kept = []

    def step():
        dist = torch.distributions.Categorical(logits=model(torch.ones(4, 8)))
        action = torch.zeros(4, dtype=torch.long)
        dist.log_prob(action).sum().backward()
        kept[:] = [dist.log_prob(action).detach().cpu()]  # SYNC003

    return step
