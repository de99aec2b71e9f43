import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_


def _parts(**more):
    model = nn.Linear(8, 1)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), torch.amp.GradScaler("cpu", **more)


def unscaled_before_clipping():
    model, optimizer, scaler = _parts()

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.ones(4, 8)).float().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


def norm_read_with_an_infinite_limit():
    model, optimizer, scaler = _parts()

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        clip_grad_norm_(model.parameters(), float("inf"))
        scaler.step(optimizer)
        scaler.update()

    return step


def another_model_without_a_scaler_is_clipped():
    model, optimizer, scaler = _parts()
    critic = nn.Linear(8, 1)
    plain = torch.optim.SGD(critic.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        plain.zero_grad()
        critic(torch.ones(4, 8)).mean().backward()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        clip_grad_norm_(critic.parameters(), 1.0)
        plain.step()
        scaler.step(optimizer)
        scaler.update()

    return step


def disabled_scaler_and_bfloat16():
    model, optimizer, scaler = _parts(enabled=False)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.ones(4, 8)).float().mean()
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


def scale_comes_down_at_the_beginning():
    model, optimizer, scaler = _parts()
    count = [0]

    def step():
        count[0] += 1
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean() * (float("inf") if count[0] < 5 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def autocast_switched_off_around_backward():
    model = nn.Linear(8, 1)

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.ones(4, 8)).float().mean()
            with torch.autocast("cpu", enabled=False):
                loss.backward()

    return step


def unscaled_by_hand():
    model, optimizer, scaler = _parts()

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        for parameter in model.parameters():
            parameter.grad /= scaler.get_scale()
        optimizer.step()

    return step


def second_optimizer_with_a_loss_of_its_own():
    model, optimizer, scaler = _parts()
    critic = nn.Linear(8, 1)
    plain = torch.optim.SGD(critic.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        plain.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        critic(torch.ones(4, 8)).mean().backward()
        scaler.step(optimizer)
        plain.step()
        scaler.update()

    return step


def fused_optimizer_that_unscales_by_itself():
    model = nn.Linear(8, 1)
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True), torch.amp.GradScaler("cpu")

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def static_scale_by_hand():
    model, optimizer, _ = _parts()

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.ones(4, 8)).float().mean()
        (loss * 1024).backward()
        for parameter in model.parameters():
            parameter.grad /= 1024
        optimizer.step()

    return step


def float16_only_where_nothing_is_trained():
    model, optimizer, _ = _parts()

    def step():
        optimizer.zero_grad()
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
            target = model(torch.ones(4, 8)).float()
        (model(torch.ones(4, 8)) - target).square().mean().backward()
        optimizer.step()

    return step


def limit_by_value_is_scaled_as_well():
    model = nn.Linear(8, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=1e-3), torch.amp.GradScaler("cpu")

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5 * scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()

    return step


def gradients_averaged_by_hand_while_scaled():
    model, optimizer, scaler = _parts()
    tokens = torch.tensor(7.0)

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).sum()).backward()
        for p in model.parameters():
            p.grad.mul_(1.0 / tokens)  # linear: the scale passes through
        scaler.step(optimizer)
        scaler.update()

    return step


def weights_clamped_behind_the_step():
    model, optimizer, scaler = _parts()

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        for p in model.parameters():
            p.data.clamp_(-0.1, 0.1)

    return step


def two_backwards_each_with_its_step():
    model, optimizer, scaler = _parts(growth_interval=500)

    def step():
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(4, 8)).mean()).backward()
            scaler.step(optimizer)
            scaler.update()

    return step


def a_scaler_made_once_at_the_first_step():
    model, optimizer, _ = _parts()
    kept = []

    def step():
        if not kept:
            kept.append(torch.amp.GradScaler("cpu"))
        optimizer.zero_grad()
        kept[0].scale(model(torch.ones(4, 8)).mean()).backward()
        kept[0].step(optimizer)
        kept[0].update()

    return step


def two_optimizers_and_one_update():
    first, one, scaler = _parts(growth_interval=500)
    second, other, _ = _parts()

    def step():
        one.zero_grad()
        scaler.scale(first(torch.ones(4, 8)).mean()).backward()
        scaler.step(one)
        other.zero_grad()
        scaler.scale(second(torch.ones(4, 8)).mean()).backward()
        scaler.step(other)
        scaler.update()

    return step


def one_update_that_comes_when_the_next_step_has_begun():
    first, one, scaler = _parts(growth_interval=500)
    second, other, _ = _parts()
    begun = []

    def step():
        if begun:
            scaler.update()
        begun.append(True)
        for model, optimizer in ((first, one), (second, other)):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(4, 8)).mean()).backward()
            scaler.step(optimizer)

    return step


def two_iterations_of_one_step_that_take_turns():
    first, one, scaler = _parts(growth_interval=500)
    second, other, _ = _parts()

    def train(turn):
        model, optimizer = ((first, one), (second, other))[turn]
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).mean()).backward()
        scaler.step(optimizer)
        if turn == 0:
            scaler.update()
        else:
            scaler.update()

    def step():
        train(0)
        train(1)

    return step
