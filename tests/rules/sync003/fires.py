import contextlib
import io

import torch
from torch import nn

from tests.rules.programs import behind_a_backward, looked_at


def predictions_as_a_list__rehearsal():
    predictions = []
    return looked_at(lambda out: predictions.append(out.argmax(1).tolist()), 3)  # SYNC003


def loss_printed__rehearsal():
    def after(loss):
        with contextlib.redirect_stdout(io.StringIO()):
            print(loss)  # SYNC003

    return behind_a_backward(after, "cuda")


def copied_and_read_on_one_line__rehearsal():
    seen = []
    return behind_a_backward(lambda loss: seen.append(loss.detach().cpu().item()), "cuda")  # SYNC003


def copy_of_what_a_library_checked__rehearsal():
    model = nn.Linear(8, 3, device="cuda")
    kept = []

    def step():
        dist = torch.distributions.Categorical(logits=model(torch.ones(4, 8, device="cuda")))
        action = torch.zeros(4, dtype=torch.long, device="cuda")
        dist.log_prob(action).sum().backward()
        kept[:] = [dist.log_prob(action).detach().cpu()]  # SYNC003

    return step
