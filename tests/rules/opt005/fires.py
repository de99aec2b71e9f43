import torch
from torch import nn

from tests.rules.programs import optimized, trained_once


def no_zero_grad_at_all():
    model, optimizer = optimized(nn.Linear(8, 4), torch.optim.AdamW)

    def step():
        model(torch.ones(4, 8)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # OPT005

    return step


def one_of_two_optimizers():
    body, head = nn.Linear(8, 8), nn.Linear(8, 4)
    first, second = torch.optim.SGD(body.parameters(), lr=1e-3), torch.optim.SGD(head.parameters(), lr=1e-3)

    def step():
        trained_once(head, first, body(torch.ones(4, 8)))
        second.step()  # OPT005

    return step


def a_closure_that_does_not_clear():
    model = nn.Linear(8, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=2)

    def closure():
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        return loss
    return lambda: optimizer.step(closure)  # OPT005


def under_a_scaler__rehearsal():
    model, scaler = nn.Linear(8, 4).cuda(), torch.amp.GradScaler("cuda", init_scale=8.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.ones(4, 8, device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)  # OPT005
        scaler.update()

    return step
