import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from tests.rules.opt006.silent import _parts
from tests.rules.programs import trained_with


def clipped_before_the_backward():
    model, optimizer = _parts()

    def loss_of():
        loss = model(torch.ones(4, 8)).square().mean()
        clip_grad_norm_(model.parameters(), 1.0)  # OPT006
        return loss

    return trained_with(optimizer, loss_of)


def clipped_by_value_before_the_backward_of_zeroed_gradients():
    model, optimizer = _parts()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = model(torch.ones(4, 8)).square().mean()
        clip_grad_value_(model.parameters(), 0.5)  # OPT006
        loss.backward()
        optimizer.step()

    return step


def clipped_behind_the_step():
    model, optimizer = _parts()

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # OPT006

    return step


def of_two_optimizers_the_generators_is_clipped_too_early():
    generator, one = _parts()
    critic, other = _parts()

    def step():
        other.zero_grad()
        critic(torch.ones(4, 8)).mean().backward()
        clip_grad_norm_(critic.parameters(), 1.0)
        other.step()
        one.zero_grad()
        loss = generator(torch.ones(4, 8)).square().mean()
        clip_grad_norm_(generator.parameters(), 1.0)  # OPT006
        loss.backward()
        one.step()

    return step


def accumulated_and_clipped_after_each_backward__note():
    model, optimizer = _parts()

    def step():
        optimizer.zero_grad()
        for _ in range(4):
            model(torch.ones(4, 8)).square().mean().backward()
            clip_grad_norm_(model.parameters(), 1.0)  # OPT006
        optimizer.step()

    return step
