import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def _trained(model, loss_of):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        loss_of().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def weights_from_numpy_converted_once():
    model, weights = nn.Linear(8, 4), torch.from_numpy(np.linspace(0.5, 1.0, 4)).float()
    x, y = torch.ones(16, 8), torch.zeros(16, dtype=torch.long)
    return _trained(model, lambda: (F.cross_entropy(model(x), y, reduction="none") * weights[y]).mean())


def batch_converted_before_its_first_use():
    model, target = nn.Linear(8, 1), np.ones((16, 1))
    return _trained(model, lambda: (model(torch.ones(16, 8)) - torch.from_numpy(target).float()).square().mean())


def a_number_of_numpy_as_a_factor():
    model, weight = nn.Linear(8, 4), np.float64(0.5)
    return _trained(model, lambda: (model(torch.ones(16, 8)) * weight).square().mean())


def a_running_mean_in_double():
    model, total = nn.Linear(8, 4), torch.zeros((), dtype=torch.float64)

    def loss():
        value = model(torch.ones(16, 8)).square().mean()
        total.add_(value.detach())
        return value

    return _trained(model, loss)


def a_sum_that_keeps_its_digits():
    model = nn.Linear(8, 4)
    return _trained(model, lambda: model(torch.ones(16, 8)).square().sum(dtype=torch.float64).float() / 64)


def metrics_without_gradients():
    model = nn.Linear(8, 4)

    def loss():
        out = model(torch.ones(16, 8))
        with torch.no_grad():
            wide = out.double()
            (wide @ wide.T).trace()
        return out.square().mean()

    return _trained(model, loss)


def a_detached_statistic():
    model = nn.Linear(8, 4)

    def loss():
        out = model(torch.ones(16, 8))
        out.detach().double().std()
        return out.square().mean()

    return _trained(model, loss)


def scaled_by_gradscaler():
    model, scaler = nn.Linear(8, 4), torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.ones(16, 8)).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


def a_few_digits_of_a_large_model():
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8)))
    return _trained(model, lambda: model(torch.ones(64, 64)).mean(0)[:8].double().logsumexp(0).float())


def normalised_from_numpy_on_the_gpu__rehearsal():
    model, mean = nn.Linear(8, 4).cuda(), torch.from_numpy(np.zeros(8)).float().cuda()
    x = torch.ones(16, 8, device="cuda")
    return _trained(model, lambda: model(x - mean).square().mean())


def batch_normalised_in_float64_and_cast_then():
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(64, 512)))
    model = nn.Linear(512, 1)
    return _trained(model, lambda: model((rows - rows.mean(0)).float()).square().mean())
