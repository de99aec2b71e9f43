import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_


def _parts(**more):
    model = nn.Linear(8, 1)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), torch.amp.GradScaler("cpu", **more)


def clipped_before_step_unscales():
    model, optimizer, scaler = _parts()

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        clip_grad_norm_(model.parameters(), 1.0)  # AMP006
        scaler.step(optimizer)
        scaler.update()

    return step


def scaler_with_bfloat16():
    model, optimizer, scaler = _parts()

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.ones(4, 8)).float().mean()
        scaler.scale(loss).backward()  # AMP006
        scaler.step(optimizer)
        scaler.update()

    return step


def skips_again_and_again():
    model, optimizer, scaler = _parts(growth_interval=1)
    count = [0]

    def step():
        count[0] += 1
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean() * (float("inf") if count[0] % 3 == 0 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()  # AMP006

    return step


def backward_inside_autocast():
    model = nn.Linear(8, 1)

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model(torch.ones(4, 8)).float().mean().backward()  # AMP006

    return step


def clipped_while_scaled_on_a_gpu__rehearsal():
    model = nn.Linear(8, 1).cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.amp.GradScaler("cuda")
    x = torch.ones(4, 8, device="cuda")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).float().mean()
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)  # AMP006
        scaler.step(optimizer)
        scaler.update()

    return step


def optimizer_stepped_by_itself_with_scaled_gradients():
    model, optimizer, scaler = _parts()

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.ones(4, 8)).float().mean()
        scaler.scale(loss).backward()
        optimizer.step()  # AMP006

    return step


def scale_collapsed_in_the_first_steps():
    model, optimizer, scaler = _parts(init_scale=4.0, growth_interval=1000)
    count = [0]

    def step():
        count[0] += 1
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean() * (float("inf") if count[0] < 6 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()  # AMP006

    return step


def float16_without_a_scale_is_a_note():
    model, optimizer, _ = _parts()

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.ones(4, 8)).float().mean()
        loss.backward()  # AMP006
        optimizer.step()

    return step


def clipped_by_value_while_scaled():
    model, optimizer, scaler = _parts()

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        nn.utils.clip_grad_value_(model.parameters(), clip_value=0.5)  # AMP006
        scaler.step(optimizer)
        scaler.update()

    return step


def clamped_by_hand_while_scaled():
    model, optimizer, scaler = _parts()

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        for p in model.parameters():
            if p.grad is not None:
                p.grad.data.clamp_(-1.0, 1.0)  # AMP006
        scaler.step(optimizer)
        scaler.update()

    return step


def norm_clipped_by_hand_while_scaled():
    model, optimizer, scaler = _parts()

    def clip(limit):
        norm = sum((p.grad**2).sum() for p in model.parameters()).sqrt()
        factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
        for p in model.parameters():
            p.grad.mul_(factor)  # AMP006

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        clip(1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


def a_scaler_for_each_step():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        scaler = torch.amp.GradScaler("cpu")  # AMP006
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def stepped_again_without_a_backward():
    model, optimizer, scaler = _parts()

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.step()  # AMP006

    return step


def scaler_stepped_and_updated_twice():
    model, optimizer, scaler = _parts()

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        for _ in range(2):
            scaler.step(optimizer)  # AMP006
            scaler.update()

    return step


def a_scale_that_never_grows():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10**9)  # AMP006

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def updated_after_each_of_two_optimizers_is_a_note():
    first, one, scaler = _parts(growth_interval=500)
    second, other, _ = _parts()

    def step():
        one.zero_grad()
        scaler.scale(first(torch.ones(4, 8)).mean()).backward()
        scaler.step(one)
        scaler.update()  # AMP006
        other.zero_grad()
        scaler.scale(second(torch.ones(4, 8)).mean()).backward()
        scaler.step(other)
        scaler.update()

    return step


def updated_twice_in_a_script_whose_step_ends_with_the_second_optimizer_is_a_note():
    first, one, scaler = _parts(growth_interval=500)
    second, other, _ = _parts()
    begun = []

    def step():
        if begun:
            scaler.update()
        begun.append(True)
        one.zero_grad()
        scaler.scale(first(torch.ones(4, 8)).mean()).backward()
        scaler.step(one)
        scaler.update()  # AMP006
        other.zero_grad()
        scaler.scale(second(torch.ones(4, 8)).mean()).backward()
        scaler.step(other)

    return step
