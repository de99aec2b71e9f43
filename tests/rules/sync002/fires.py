import torch
from torch import nn

from tests.rules.programs import behind_a_backward, looked_at


def best_loss_kept_by_comparison__rehearsal():
    best = [torch.tensor(1e9, device="cuda")]

    def after(loss):
        best[0] = loss.detach() if loss < best[0] else best[0]  # SYNC002

    return behind_a_backward(after, "cuda")


def assertion_on_the_output__rehearsal():
    def look(out):
        assert out.isfinite().all()  # SYNC002

    return looked_at(look)


def loop_until_converged__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        error = model(torch.ones(4, 8, device="cuda")).square().mean() + 1
        while error > 0.5:  # SYNC002
            error = error / 2
        error.backward()

    return step


def larger_of_two_losses__rehearsal():
    model = nn.Linear(8, 2, device="cuda")

    def step():
        a, b = model(torch.ones(4, 8, device="cuda")).mean(0)
        max(a, b).backward()  # SYNC002

    return step
