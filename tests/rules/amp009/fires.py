import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import trained_by


def log_of_a_sigmoid_under_autocast():
    model = nn.Linear(8, 1)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            probability = torch.sigmoid(model(torch.ones(4, 8)))
            return -torch.log(probability).mean()  # AMP009

    return trained_by(model, loss)


def kl_of_a_variational_model_in_half():
    model = nn.Linear(8, 4).half()

    def loss():
        mean, log_variance = model(torch.ones(4, 8).half()).chunk(2, -1)
        return (mean * mean + log_variance.exp() - log_variance).sum()  # AMP009

    return trained_by(model, loss)


def in_bfloat16_it_is_a_note():
    model, target = nn.Linear(8, 4).bfloat16(), torch.tensor([0, 1, 2, 3])
    return trained_by(model, lambda: F.cross_entropy(model(torch.ones(4, 8).bfloat16()), target))  # AMP009


def scaled_before_backward():
    model, scaler = nn.Linear(8, 1), torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            score = model(torch.ones(4, 8))
            loss = -torch.log(torch.sigmoid(score)).mean()  # AMP009
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def model_in_half_on_a_gpu__rehearsal():
    model, x = nn.Linear(8, 4).half().cuda(), torch.ones(4, 8, device="cuda", dtype=torch.float16)
    target = torch.tensor([0, 1, 2, 3], device="cuda")
    return trained_by(model, lambda: F.cross_entropy(model(x), target))  # AMP009
