import torch
from torch import nn

from tests.rules.programs import trained_by


def mask_filled_with_the_largest_negative_number():
    model = nn.Linear(8, 8)
    later = torch.ones(8, 8).triu(1)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            x = model(torch.eye(8))
            mask = later.half() * torch.finfo(torch.float16).min
            score = (x @ x.t()).masked_fill(later > 0, torch.finfo(torch.float16).min) + mask.clamp(min=-6e4) * 0
            return (torch.softmax(score, -1) @ x).float().square().mean()

    return trained_by(model, loss)


def gradients_that_the_scaler_scaled_up():
    model, scaler = nn.Linear(8, 1), torch.amp.GradScaler("cpu", init_scale=32768.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.ones(4, 8)).float().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def ordinary_activations_in_half():
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1)).half()
    return trained_by(model, lambda: model(torch.ones(4, 64).half()).float().square().mean())


def large_in_float32():
    model = nn.Linear(8, 4)
    return trained_by(model, lambda: (model(torch.ones(4, 8)) * 5e4).abs().mean() * 1e-5)


def labels_and_positions_that_are_large():
    model, positions = nn.Linear(8, 1).half(), torch.arange(0, 64000, 16000).half()
    return trained_by(model, lambda: (model(torch.ones(4, 8).half()).float().square().mean() + positions.float().mean()))


def infinities_of_a_mask_and_a_skipped_step():
    model, scaler = nn.Linear(8, 8), torch.amp.GradScaler("cpu", init_scale=4.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    later = torch.ones(8, 8).triu(1).bool()

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            x = model(torch.eye(8))
            score = (x @ x.t()).masked_fill(later, -float("inf")) * 0.5
            loss = (torch.softmax(score, -1) @ x).float().square().mean()
        scaler.scale(loss).backward()
        model.bias.grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()  # AMP006

    return step


def an_overflow_that_a_bound_cuts_off_before_the_loss():
    model = nn.Linear(8, 1)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            off = model(torch.ones(4, 8)) - 4000.0
            return (off * off).clamp(max=100.0).float().mean() + off.float().square().mean()

    return trained_by(model, loss)


def a_loss_that_is_infinite_once_before_its_scale_came_down():
    model = nn.Linear(8, 1)
    calls = [0]

    def loss():
        calls[0] += 1
        with torch.autocast("cpu", dtype=torch.float16):
            off = model(torch.ones(4, 8)) - (400.0 if calls[0] % 3 == 0 else 1.0)
            return torch.sqrt((off * off).mean())

    return trained_by(model, loss)


def an_infinite_loss_of_float32():
    model = nn.Linear(8, 1)

    def loss():
        off = model(torch.ones(4, 8)) - 1e20
        return torch.sqrt((off * off).mean())

    return trained_by(model, loss)


def the_power_taken_in_float32():
    model = nn.Linear(8, 1)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            off = model(torch.ones(4, 8)).float() - 400.0
            return torch.sqrt((off**2).mean())

    return trained_by(model, loss)


def a_negative_power_at_its_pole():
    model = nn.Linear(8, 1)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            return ((model(torch.ones(4, 8)) * 0.0) ** -2).clamp(max=5.0).float().mean()

    return trained_by(model, loss)
