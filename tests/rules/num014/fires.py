import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from tests.rules.programs import optimized


def norm_that_clipping_hides():
    model, gain = nn.Linear(8, 1), [1.0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        gain[0] *= 1.6
        optimizer.zero_grad()
        (model(torch.ones(4, 8)) * gain[0]).mean().backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # NUM014

    return step


def norm_that_clipping_hides__rehearsal():
    model, gain = nn.Linear(8, 1).cuda(), [1.0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", init_scale=16.0)

    def step():
        gain[0] *= 1.8
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = (model(torch.ones(4, 8, device="cuda")).float() * gain[0]).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)  # NUM014
        scaler.update()

    return step


def rate_that_a_warm_up_multiplies_by_the_step():
    torch.manual_seed(0)
    model, optimizer = optimized(nn.Linear(8, 1), lr=0.05, momentum=0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(n + 1, 100))  # NUM014

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
        schedule.step()

    return step
