import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from tests.rules.programs import numbered, optimized, scaled_once, with_a_scaler

X = torch.ones(4, 8)


def _scaled(behind, loss_of=torch.mean, **more):
    model, optimizer, scaler = with_a_scaler(**more)
    return lambda: scaled_once(optimizer, scaler, loss_of(model(X)), lambda: behind(model, optimizer, scaler))


def unscaled_before_clipping():
    model, optimizer, scaler = with_a_scaler()

    def clip():
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)

    def step():
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(X).float().mean()
        scaled_once(optimizer, scaler, loss, clip)

    return step


def norm_read_with_an_infinite_limit():
    return _scaled(lambda model, *_: clip_grad_norm_(model.parameters(), float("inf")))


def another_model_without_a_scaler_is_clipped():
    critic, plain = optimized(nn.Linear(8, 1))

    def behind(*_):
        plain.zero_grad()
        critic(X).mean().backward()
        clip_grad_norm_(critic.parameters(), 1.0)
        plain.step()

    return _scaled(behind)


def disabled_scaler_and_bfloat16():
    model, optimizer, scaler = with_a_scaler(enabled=False)

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(X).float().mean()
        scaled_once(optimizer, scaler, loss, lambda: clip_grad_norm_(model.parameters(), 1.0))

    return step


def scale_comes_down_at_the_beginning():
    model, optimizer, scaler = with_a_scaler()

    def step(number):
        scaled_once(optimizer, scaler, model(X).mean() * (float("inf") if number < 5 else 1.0))

    return numbered(step)


def autocast_switched_off_around_backward():
    model = nn.Linear(8, 1)

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(X).float().mean()
            with torch.autocast("cpu", enabled=False):
                loss.backward()

    return step


def unscaled_by_hand():
    model, optimizer, scaler = with_a_scaler()

    def step():
        optimizer.zero_grad()
        scaler.scale(model(X).mean()).backward()
        for parameter in model.parameters():
            parameter.grad /= scaler.get_scale()
        optimizer.step()

    return step


def fused_optimizer_that_unscales_by_itself():
    model, _, scaler = with_a_scaler()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    return lambda: scaled_once(optimizer, scaler, model(X).mean())


def static_scale_by_hand():
    model, optimizer, _ = with_a_scaler()

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(X).float().mean()
        (loss * 1024).backward()
        for parameter in model.parameters():
            parameter.grad /= 1024
        optimizer.step()

    return step


def float16_only_where_nothing_is_trained():
    model, optimizer, _ = with_a_scaler()

    def step():
        optimizer.zero_grad()
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
            target = model(X).float()
        (model(X) - target).square().mean().backward()
        optimizer.step()

    return step


def limit_by_value_is_scaled_as_well():
    return _scaled(lambda model, _, scaler: clip_grad_value_(model.parameters(), 0.5 * scaler.get_scale()))


def gradients_averaged_by_hand_while_scaled():
    tokens = torch.tensor(7.0)

    def behind(model, *_):
        for p in model.parameters():
            p.grad.mul_(1.0 / tokens)  # linear: the scale passes through

    return _scaled(behind, torch.sum)


def weights_clamped_behind_the_step():
    model, optimizer, scaler = with_a_scaler()

    def step():
        scaled_once(optimizer, scaler, model(X).mean())
        for p in model.parameters():
            p.data.clamp_(-0.1, 0.1)

    return step


def two_backwards_each_with_its_step():
    model, optimizer, scaler = with_a_scaler(growth_interval=500)

    def step():
        for _ in range(2):
            scaled_once(optimizer, scaler, model(X).mean())

    return step


def a_scaler_made_once_at_the_first_step():
    model, optimizer, _ = with_a_scaler()
    kept = []

    def step():
        if not kept:
            kept.append(torch.amp.GradScaler("cpu"))
        scaled_once(optimizer, kept[0], model(X).mean())

    return step


def _two(update_begins):
    first, one, scaler = with_a_scaler(growth_interval=500)
    second, other, _ = with_a_scaler()

    def step(number):
        if update_begins and number > 1:
            scaler.update()
        for model, optimizer in ((first, one), (second, other)):
            optimizer.zero_grad()
            scaler.scale(model(X).mean()).backward()
            scaler.step(optimizer)
        if not update_begins:
            scaler.update()

    return numbered(step)


def two_optimizers_and_one_update():
    return _two(update_begins=False)


def one_update_that_comes_when_the_next_step_has_begun():
    return _two(update_begins=True)


def two_iterations_of_one_step_that_take_turns():
    first, one, scaler = with_a_scaler(growth_interval=500)
    second, other, _ = with_a_scaler()

    def train(turn):
        model, optimizer = ((first, one), (second, other))[turn]
        optimizer.zero_grad()
        scaler.scale(model(X).mean()).backward()
        scaler.step(optimizer)
        if turn == 0:
            scaler.update()
        else:
            scaler.update()

    def step():
        train(0)
        train(1)

    return step
