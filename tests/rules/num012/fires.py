import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import optimized, trained_by


def lower_bound_in_half():
    model = nn.Linear(8, 4)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            size = model(torch.ones(4, 8)).abs().sum(-1, keepdim=True)
        return (1 / size.clamp(min=1e-9)).float().mean()  # NUM012

    return trained_by(model, loss)


def normalize_with_its_default():
    model = nn.Linear(8, 4).half()

    def loss():
        rows = model(torch.ones(4, 8, dtype=torch.float16))
        return F.normalize(rows, dim=-1).float().sum()  # NUM012

    return trained_by(model, loss)


def cosine_similarity_with_its_default():
    model = nn.Linear(8, 4).half()

    def loss():
        rows = model(torch.ones(4, 8, dtype=torch.float16))
        return F.cosine_similarity(rows, torch.ones_like(rows)).float().mean()  # NUM012

    return trained_by(model, loss)


def adam_on_weights_in_half():
    model, optimizer = optimized(nn.Linear(8, 4).half(), torch.optim.Adam, foreach=False)

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 8, dtype=torch.float16)).float().square().mean().backward()
        optimizer.step()  # NUM012

    return step


def mean_square_norm_that_is_nearly_unbounded():
    model, scale = nn.Linear(8, 4), nn.Parameter(torch.ones(4))

    def loss():
        x = model(torch.ones(4, 8))
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-20) * scale).sum()  # NUM012

    return trained_by(model, loss)


def under_autocast_on_a_gpu__rehearsal():
    model = nn.Linear(8, 1).cuda()
    x = torch.ones(4, 8, device="cuda")

    def loss():
        with torch.autocast("cuda", dtype=torch.float16):
            score = torch.sigmoid(model(x))
            return -torch.log(score + 1e-8).mean()  # NUM012

    return trained_by(model, loss)
