import torch
from torch import nn

from tests.rules.programs import numbered, optimized, trained_with


def _trained(model, loss_of, lr=0.1, optimizer=torch.optim.SGD):
    torch.manual_seed(0)
    for layer in model.modules():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    optimizer = optimizer(model.parameters(), lr=lr)
    return trained_with(optimizer, loss_of)


def log_of_a_sigmoid_that_underflows():
    model, count = nn.Linear(4, 1), [0]

    def loss():
        count[0] += 1
        score = model(torch.ones(2, 4)) - 40.0 * count[0]
        probability = torch.sigmoid(score)
        return -torch.log(probability).mean()  # NUM002

    return _trained(model, loss, lr=1e-6)


def root_at_zero_in_the_backward():
    model = nn.Linear(4, 4)

    def loss():
        gap = model(torch.ones(2, 4))
        distance = (gap - gap.detach()).square().sum(-1)
        return torch.sqrt(distance).mean() + gap.square().mean()  # NUM002

    return _trained(model, loss)


def a_row_with_everything_masked():
    model = nn.Linear(4, 4)
    mask = torch.zeros(4, 4)
    mask[2] = float("-inf")

    def loss():
        scores = model(torch.eye(4)) + mask
        return torch.softmax(scores, -1)[:, 0].mean()  # NUM002

    return _trained(model, loss)


def masked_scores_that_overflow_in_place():
    model = nn.Linear(4, 4)
    later = torch.ones(4, 4).triu(1) > 0

    def loss():
        scores = model(torch.eye(4)) + 100
        scores.masked_fill_(later, float("-inf"))
        scores.exp_()  # NUM002
        return (scores / scores.sum(-1, keepdim=True))[:, 0].mean()

    return _trained(model, loss)


def division_inside_a_functions_own_backward():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, by):
            ctx.by = by
            return x * by

        @staticmethod
        def backward(ctx, gradient):
            return gradient / ctx.by, None  # NUM002

    model = nn.Linear(4, 1)
    return _trained(model, lambda: Scaled.apply(model(torch.ones(2, 4)), torch.zeros(1)).sum())


def born_while_gradients_accumulate():
    model, optimizer = optimized(nn.Linear(4, 1), lr=0.1)

    def step(number):
        x = torch.ones(2, 4) * (0.0 if number == 9 else 1.0)
        (model(torch.ones(2, 4)).sum() * (x / x.sum()).mean()).backward()  # NUM002
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()

    return numbered(step)


def nan_written_into_the_batch_by_a_mask():
    model, count = nn.Linear(4, 1), [0]

    def batch():
        count[0] += 1
        x = torch.ones(2, 4)
        x[x > (0.5 if count[0] == 7 else 2.0)] = float("nan")  # NUM002
        return x

    return _trained(model, lambda: model(batch()).square().sum())


def scores_beyond_half_under_autocast__rehearsal():
    model = nn.Linear(64, 64).cuda()

    def loss():
        with torch.autocast("cuda", dtype=torch.float16):
            keys = model(torch.ones(1, 8, 64, device="cuda")) + 200
            scores = keys @ keys.transpose(1, 2)  # NUM002
            return (scores - scores.amax(-1, keepdim=True)).softmax(-1).square().mean()

    return _trained(model, loss)


def epsilon_that_half_cannot_hold__rehearsal():
    model = nn.Linear(8, 8, bias=False).cuda().half()

    def loss():
        out = model(torch.zeros(4, 8, device="cuda", dtype=torch.float16))
        length = out.detach().norm(dim=-1, keepdim=True)
        return (out / (length + 1e-8)).float().mean()  # NUM002

    return _trained(model, loss)


def running_statistics_behind_a_guard_of_the_loss():
    model, optimizer = optimized(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))

    def step(number):
        x = torch.rand(8, 4) * (1e30 if number % 4 == 0 else 1.0)
        x = x.square()  # NUM002
        optimizer.zero_grad()
        loss = model(x).square().mean()
        if not torch.isfinite(loss):
            return
        loss.backward()
        optimizer.step()

    return numbered(step)
