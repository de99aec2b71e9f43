import contextlib
import io

import torch
from torch import nn


def predictions_as_a_list__rehearsal():
    model, predictions = nn.Linear(8, 3, device="cuda"), []

    def step():
        out = model(torch.ones(4, 8, device="cuda"))
        predictions[:] = out.argmax(1).tolist()  # SYNC003
        out.mean().backward()

    return step


def metric_in_numpy__rehearsal():
    model, metrics = nn.Linear(8, 1, device="cuda"), {}

    def step():
        out = model(torch.ones(4, 8, device="cuda"))
        metrics["out"] = out.detach().cpu().numpy()  # SYNC003
        out.mean().backward()

    return step


def moved_by_name__rehearsal():
    model, kept = nn.Linear(8, 1, device="cuda"), {}

    def step():
        out = model(torch.ones(4, 8, device="cuda"))
        kept["out"] = out.detach().to("cpu")  # SYNC003
        out.mean().backward()

    return step


def loss_printed__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        loss = model(torch.ones(4, 8, device="cuda")).mean()
        loss.backward()
        with contextlib.redirect_stdout(io.StringIO()):
            print(loss)  # SYNC003

    return step


def copied_and_read_on_one_line__rehearsal():
    model, seen = nn.Linear(8, 1, device="cuda"), []

    def step():
        loss = model(torch.ones(4, 8, device="cuda")).mean()
        loss.backward()
        seen.append(loss.detach().cpu().item())  # SYNC003

    return step


def copy_of_what_a_library_checked__rehearsal():
    model = nn.Linear(8, 3, device="cuda")
    kept = []

    def step():
        dist = torch.distributions.Categorical(logits=model(torch.ones(4, 8, device="cuda")))
        action = torch.zeros(4, dtype=torch.long, device="cuda")
        dist.log_prob(action).sum().backward()
        kept[:] = [dist.log_prob(action).detach().cpu()]  # SYNC003

    return step
