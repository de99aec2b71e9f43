import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from tests.rules.programs import optimized


def _driven(gains, *, clip=False):
    """Gradients whose norm follows ``gains``, step after step; the last one stays."""
    model, count = nn.Linear(8, 1), [-1]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def step():
        count[0] += 1
        optimizer.zero_grad()
        (model(torch.ones(4, 8)) * gains[min(count[0], len(gains) - 1)]).mean().backward()
        if clip:
            clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def growth_that_levels_off_after_the_warm_up():
    return _driven([1e-3 * 2.5**n for n in range(9)] + [2.0] * 40)


def one_spike_that_clipping_handles():
    return _driven([1.0] * 20 + [1e6] + [1.0] * 20, clip=True)


def noise_without_a_trend():
    torch.manual_seed(0)
    return _driven((10 ** (torch.rand(60) * 4 - 2)).tolist())


def two_networks_that_take_turns_being_ahead():
    torch.manual_seed(1)
    rise = torch.linspace(0, 1, 30)
    return _driven((10 ** (rise + torch.randn(30))).tolist())


def clipped_while_scaled_by_a_growing_scale():
    model, optimizer = optimized(nn.Linear(8, 1), lr=1e-6)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=1)

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        clip_grad_norm_(model.parameters(), 1e9)
        scaler.step(optimizer)
        scaler.update()

    return step


def gradients_that_add_up_because_nobody_clears_them():
    model, optimizer = optimized(nn.Linear(8, 1), lr=1e-6)

    def step():
        model(torch.ones(4, 8)).mean().backward()
        optimizer.step()

    return step


def scale_that_comes_down_from_an_overflow__rehearsal():
    model, optimizer = optimized(nn.Linear(8, 1).cuda(), lr=1e-6)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**22)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.ones(4, 8, device="cuda")).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step
