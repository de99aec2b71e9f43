import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from tests.rules.programs import numbered, scaled_once, with_a_scaler

X = torch.ones(4, 8)


def _behind_the_backward(limit):
    model, optimizer, scaler = with_a_scaler()
    return lambda: scaled_once(optimizer, scaler, model(X).mean(), lambda: limit(model.parameters()))


def scaler_with_bfloat16():
    model, optimizer, scaler = with_a_scaler()

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(X).float().mean()
        scaler.scale(loss).backward()  # AMP006
        scaler.step(optimizer)
        scaler.update()

    return step


def _overflowing(overflows, **more):
    model, optimizer, scaler = with_a_scaler(**more)

    def step(number):
        optimizer.zero_grad()
        scaler.scale(model(X).mean() * (float("inf") if overflows(number) else 1.0)).backward()
        scaler.step(optimizer)
        return scaler

    return step


def skips_again_and_again():
    trained = _overflowing(lambda number: number % 3 == 0, growth_interval=1)
    return numbered(lambda number: trained(number).update())  # AMP006


def scale_collapsed_in_the_first_steps():
    trained = _overflowing(lambda number: number < 6, init_scale=4.0, growth_interval=1000)
    return numbered(lambda number: trained(number).update())  # AMP006


def backward_inside_autocast():
    model = nn.Linear(8, 1)

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model(X).float().mean().backward()  # AMP006

    return step


def clipped_while_scaled_on_a_gpu__rehearsal():
    model = nn.Linear(8, 1).cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.amp.GradScaler("cuda")
    x = torch.ones(4, 8, device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).float().mean()
        scaled_once(optimizer, scaler, loss, lambda: clip_grad_norm_(model.parameters(), 1.0))  # AMP006

    return step


def optimizer_stepped_by_itself_with_scaled_gradients():
    model, optimizer, scaler = with_a_scaler()

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(X).float().mean()
        scaler.scale(loss).backward()
        optimizer.step()  # AMP006

    return step


def float16_without_a_scale_is_a_note():
    model, optimizer, _ = with_a_scaler()

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(X).float().mean()
        loss.backward()  # AMP006
        optimizer.step()

    return step


def clipped_by_value_while_scaled():
    return _behind_the_backward(lambda given: nn.utils.clip_grad_value_(given, clip_value=0.5))  # AMP006


def clamped_by_hand_while_scaled():
    def clamp(parameters):
        for p in parameters:
            if p.grad is not None:
                p.grad.data.clamp_(-1.0, 1.0)  # AMP006

    return _behind_the_backward(clamp)


def norm_clipped_by_hand_while_scaled():
    def clip(parameters):
        gradients = [p.grad for p in parameters]
        norm = sum((grad**2).sum() for grad in gradients).sqrt()
        factor = torch.clamp(1.0 / (norm + 1e-6), max=1.0)
        for grad in gradients:
            grad.mul_(factor)  # AMP006

    return _behind_the_backward(clip)


def a_scaler_for_each_step():
    model, optimizer, _ = with_a_scaler()

    def step():
        scaler = torch.amp.GradScaler("cpu")  # AMP006
        scaled_once(optimizer, scaler, model(X).mean())

    return step


def stepped_again_without_a_backward():
    model, optimizer, scaler = with_a_scaler()

    def step():
        scaled_once(optimizer, scaler, model(X).mean())
        optimizer.step()  # AMP006

    return step


def scaler_stepped_and_updated_twice():
    model, optimizer, scaler = with_a_scaler()

    def step():
        optimizer.zero_grad()
        scaler.scale(model(X).mean()).backward()
        for _ in range(2):
            scaler.step(optimizer)  # AMP006
            scaler.update()

    return step


def a_scale_that_never_grows():
    model, optimizer, _ = with_a_scaler()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10**9)  # AMP006
    return lambda: scaled_once(optimizer, scaler, model(X).mean())


def updated_after_each_of_two_optimizers_is_a_note():
    first, one, scaler = with_a_scaler(growth_interval=500)
    second, other, _ = with_a_scaler()

    def step():
        one.zero_grad()
        scaler.scale(first(X).mean()).backward()
        scaler.step(one)
        scaler.update()  # AMP006
        scaled_once(other, scaler, second(X).mean())

    return step
