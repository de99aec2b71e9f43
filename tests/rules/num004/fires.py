import torch
from torch import nn

from tests.rules.programs import trained_by


def product_under_autocast():
    model, out = nn.Linear(64, 64), nn.Linear(64, 1)
    with torch.no_grad():
        model.weight.fill_(5.0)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            hidden = model(torch.full((4, 64), 100.0))  # NUM004
            return out(hidden * 1e-4).float().square().mean()

    return trained_by(model, loss)


def square_of_a_large_value():
    model = nn.Linear(8, 4).half()

    def loss():
        far = model(torch.ones(4, 8).half()) + 200
        return (far.square().float() * 1e-6).mean()  # NUM004

    return trained_by(model, loss)


def product_on_a_gpu__rehearsal():
    model = nn.Linear(64, 64).cuda()
    x = torch.full((4, 64), 100.0, device="cuda")
    with torch.no_grad():
        model.weight.fill_(5.0)

    def loss():
        with torch.autocast("cuda", dtype=torch.float16):
            return (model(x).float() * 1e-5).square().mean()  # NUM004

    return trained_by(model, loss)


def overflow_that_the_scaler_hides():
    model, scaler = nn.Linear(8, 4), torch.amp.GradScaler("cpu", init_scale=4.0)
    with torch.no_grad():
        model.weight.fill_(100.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            far = model(torch.ones(2, 8))
            loss = (far * 100.0).float().mean()  # NUM004
        scaler.scale(loss).backward()
        for parameter in model.parameters():
            parameter.grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()  # AMP006

    return step


def squared_error_by_hand_whose_root_hides_it_from_the_scaler():
    model, scaler = nn.Linear(8, 1), torch.amp.GradScaler("cpu", init_scale=4.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            off = model(torch.ones(4, 8)) - 400.0
            loss = torch.sqrt((off * off).mean())  # NUM004
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step
