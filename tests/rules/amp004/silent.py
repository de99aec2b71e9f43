import torch
from torch import nn


def _parts(**more):
    model = nn.Linear(8, 1).cuda()
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), torch.amp.GradScaler("cuda", **more)


def dtype_chosen_by_what_the_card_can__cuda():
    model, optimizer, scaler = _parts(enabled=not torch.cuda.is_bf16_supported())
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    x = torch.ones(4, 8, device="cuda")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=dtype):
            loss = model(x).float().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def no_mixed_precision__cuda():
    model, optimizer, _ = _parts()
    x = torch.ones(4, 8, device="cuda")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", enabled=False):
            model(x).float().mean().backward()
        optimizer.step()

    return step


def float16_only_for_a_frozen_teacher__cuda():
    model, optimizer, _ = _parts()
    teacher = nn.Linear(8, 1).cuda()
    x = torch.ones(4, 8, device="cuda")

    def step():
        optimizer.zero_grad()
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
            wanted = teacher(x).float()
        (model(x) - wanted).square().mean().backward()
        optimizer.step()

    return step


def float16_on_a_cpu():
    model = nn.Linear(8, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=1e-3), torch.amp.GradScaler("cpu")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.ones(4, 8)).float().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step
