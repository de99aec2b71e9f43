import torch

from tests.rules.programs import behind_a_backward, looked_at, scored


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
    def score(out):
        error = out.square().mean() + 1
        while error > 0.5:  # SYNC002
            error = error / 2
        return error

    return scored(score)


def larger_of_two_losses__rehearsal():
    return scored(lambda out: max(*out.mean(0)), 2)  # SYNC002
