import torch
from torch import nn

from tests.rules.programs import numbered, saving, trained_with


def decayed_from_the_configured_rate():
    return saving({"lr": "1e-2"}, lambda o: torch.optim.lr_scheduler.StepLR(o, 2, gamma=0.5))


def in_the_middle_of_its_warm_up():
    return saving({"lr": 0.01}, lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: step / 100))


def lowered_by_hand_without_a_scheduler():
    return saving({"lr": 0.1}, lambda o: None)


def one_cycle_as_configured():
    config = {"max_lr": 0.05, "total_steps": 100}
    return saving(config, lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=100))


def rate_of_something_else_beside_the_right_one():
    return saving({"lr": 0.01, "discriminator": {"lr": 0.0004}}, lambda o: torch.optim.lr_scheduler.StepLR(o, 5))


def no_rate_in_the_configuration():
    return saving({"batch_size": 8, "weight_decay": 0.1}, lambda o: None)


def _resumed(state, lr=1e-3, *, make=torch.optim.SGD, then=lambda optimizer: None):
    parameter = nn.Parameter(torch.ones(2))
    optimizer = make([parameter], lr=lr) if lr is not None else make([parameter])
    optimizer.load_state_dict(state)
    then(optimizer)
    return trained_with(optimizer, lambda: parameter.square().sum())


def _state(rate, schedule=None, make=torch.optim.SGD):
    parameter = nn.Parameter(torch.ones(2))
    optimizer = make([parameter], lr=rate)
    scheduler = schedule(optimizer) if schedule is not None else None
    for _ in range(3):
        parameter.square().sum().backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return optimizer.state_dict()


def run_goes_on_in_the_middle_of_its_cosine():
    return _resumed(_state(1e-3, lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10)))


def run_goes_on_with_a_rate_lowered_on_a_plateau():
    return _resumed(_state(1e-4))


def rate_set_again_after_loading():
    def again(optimizer):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3

    return _resumed(_state(5e-3), then=again)


def schedule_made_anew_after_loading():
    return _resumed(_state(5e-3), then=lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1e-3, total_steps=200))


def no_rate_was_set():
    return _resumed(_state(5e-4, lambda o: torch.optim.lr_scheduler.StepLR(o, 2), torch.optim.AdamW), None, make=torch.optim.AdamW)


def rate_of_zero_until_the_schedule_sets_it():
    return _resumed(_state(5e-4), 0.0)


def one_cycle_whose_optimizer_was_made_with_another_rate():
    return _resumed(_state(0.1, lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 5e-3, total_steps=100)), 0.1)


def state_of_an_earlier_step_taken_back_in_the_step():
    parameter = nn.Parameter(torch.ones(2))
    optimizer, state = torch.optim.SGD([parameter], lr=1e-4), _state(5e-4)

    def loss():
        optimizer.load_state_dict(state)
        return parameter.square().sum()

    return trained_with(optimizer, loss)


def no_rate_was_given_and_the_loaded_one_is_higher():
    return _resumed(_state(5e-2), None)


def snapshot_that_brings_back_a_rate_which_a_schedule_has_lowered():
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=1e-2, momentum=0.9)
    kept = optimizer.state_dict()

    def step(number):
        nonlocal kept
        if number % 10 == 5:
            optimizer.param_groups[0]["lr"] *= 0.5
        if number % 10 == 0:
            optimizer.load_state_dict(kept)
        optimizer.zero_grad()
        parameter.square().sum().backward()
        optimizer.step()

    return numbered(step)
