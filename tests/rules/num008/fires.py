import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import trained_by


def log_of_a_sigmoid_in_small_scores_is_a_note():
    model = nn.Linear(8, 1)
    return trained_by(model, lambda: -model(torch.ones(4, 8)).sigmoid().log().mean())  # NUM008


def log_of_chosen_probabilities():
    model, target = nn.Linear(8, 4), torch.tensor([0, 1, 2, 3])

    def loss():
        rows = F.softmax(model(torch.ones(4, 8)) + torch.tensor([0.0, 30.0, 60.0, 0.0]), dim=-1)
        return -torch.log(rows[torch.arange(4), target]).mean()  # NUM008

    return trained_by(model, loss)


def log_of_a_sum_of_exponentials():
    model = nn.Linear(8, 4)
    return trained_by(model, lambda: torch.log(torch.exp(model(torch.ones(4, 8)) + 30).sum(-1)).mean())  # NUM008


def exp_near_its_overflow():
    model = nn.Linear(8, 4)

    def loss():
        weights = torch.exp(model(torch.ones(4, 8)) + 60)  # NUM008
        return (weights / weights.sum(-1, keepdim=True))[:, 0].mean()

    return trained_by(model, loss)


def _guarded(model, loss_of):
    """A step that is thrown away if a gradient is not finite, as many trainers do."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        loss_of().backward()
        if all(torch.isfinite(parameter.grad).all() for parameter in model.parameters()):
            optimizer.step()

    return step


def root_of_a_sum_of_squares_at_zero():
    model, x = nn.Linear(4, 4, bias=False), torch.eye(4)
    x[0] = 0

    def loss():
        length = model(x).pow(2).sum(-1).sqrt()  # NUM008
        return length.mean()

    return _guarded(model, loss)


def divisor_that_is_zero_behind_where():
    model, x = nn.Linear(4, 1, bias=False), torch.eye(4)
    x[0] = 0

    def loss():
        score = model(x)
        ratio = torch.where(score == 0, torch.zeros_like(score), score.detach() / score)  # NUM008
        return (ratio + score).mean()

    return _guarded(model, loss)


def fractional_power_of_zero():
    model = nn.Linear(4, 4, bias=False)
    return _guarded(model, lambda: ((model(torch.zeros(1, 4)).abs() ** 0.5)).mean())  # NUM008


def angle_between_equal_vectors():
    model = nn.Linear(1, 1, bias=False)

    def loss():
        cosine = model.weight / model.weight.detach()
        return torch.acos(cosine).mean()  # NUM008

    return _guarded(model, loss)


def root_at_zero_on_a_gpu__rehearsal():
    model = nn.Linear(4, 4, bias=False).cuda()
    x = torch.zeros(2, 4, device="cuda")

    def step():
        model.zero_grad()
        torch.sqrt(model(x).square().sum(-1)).mean().backward()  # NUM008

    return step


def logarithm_of_negative_numbers():
    model = nn.Linear(4, 4)
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))

    def step():
        model.zero_grad()
        moved = model(x)
        det = torch.log(1 + 3 * moved)  # NUM008
        (moved.square() - det).mean().backward()

    return step
