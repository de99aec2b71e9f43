import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from tests.rules.programs import trained_once, trained_with


def _parts():
    model = nn.Linear(8, 1)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def between_backward_and_step():
    model, optimizer = _parts()

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def the_optimizer_steps_when_the_next_step_has_begun():
    model, optimizer = _parts()

    def step():
        optimizer.step()
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        clip_grad_norm_(model.parameters(), 1.0)

    return step


def only_the_norm_is_asked_for():
    model, optimizer = _parts()

    def step():
        trained_once(model, optimizer, torch.ones(4, 8))
        clip_grad_norm_(model.parameters(), float("inf"))

    return step


def a_model_that_another_optimizer_trains():
    model, optimizer = _parts()
    other, own = _parts()

    def step():
        own.zero_grad()
        other(torch.ones(4, 8)).square().mean().backward()
        clip_grad_norm_(other.parameters(), 1.0)
        trained_once(model, optimizer, torch.ones(4, 8))
        own.step()

    return step


def clipped_inside_a_closure():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        return loss
    return lambda: optimizer.step(closure)


def a_second_backward_behind_one_that_was_clipped():
    model, optimizer = _parts()

    def loss():
        model(torch.ones(4, 8)).square().mean().backward()
        clip_grad_norm_(model.parameters(), 1.0)
        return model.weight.square().sum() * 1e-4

    return trained_with(optimizer, loss)


def once_before_the_first_step():
    model, optimizer = _parts()
    begun = []

    def step():
        if not begun:
            clip_grad_norm_(model.parameters(), 1.0)
        begun.append(True)
        trained_once(model, optimizer, torch.ones(4, 8))

    return step


def clipped_and_moved_before_the_next_backward__no_note():
    model, optimizer = _parts()

    def step():
        totals = [torch.zeros_like(each) for each in model.parameters()]
        for _ in range(4):
            model(torch.ones(4, 8)).square().mean().backward()
            clip_grad_norm_(model.parameters(), 1.0)
            for total, each in zip(totals, model.parameters(), strict=True):
                total += each.grad
            optimizer.zero_grad(set_to_none=False)
        for total, each in zip(totals, model.parameters(), strict=True):
            each.grad.copy_(total)
        optimizer.step()
        optimizer.zero_grad()

    return step
