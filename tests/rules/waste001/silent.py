import itertools

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.rules.programs import gan, numbered, optimized, trained_once, trained_with


def gan_frozen_and_detached():
    g, d, g_opt, d_opt = gan()
    bce = nn.BCEWithLogitsLoss()

    def step():
        real = torch.randn(32, 128)
        fake = g(torch.randn(32, 16))
        d_opt.zero_grad()
        (bce(d(real), torch.ones(32, 1)) + bce(d(fake.detach()), torch.zeros(32, 1))).backward()
        d_opt.step()
        d.requires_grad_(False)
        g_opt.zero_grad()
        bce(d(fake), torch.ones(32, 1)).backward()
        g_opt.step()
        d.requires_grad_(True)

    return step


def gan_backward_with_inputs():
    g, d, g_opt, d_opt = gan()
    bce = nn.BCEWithLogitsLoss()

    def step():
        real = torch.randn(32, 128)
        fake = g(torch.randn(32, 16))
        d_opt.zero_grad()
        (bce(d(real), torch.ones(32, 1)) + bce(d(fake.detach()), torch.zeros(32, 1))).backward()
        d_opt.step()
        g_opt.zero_grad()
        bce(d(fake), torch.ones(32, 1)).backward(inputs=list(g.parameters()))
        g_opt.step()

    return step


def gradients_read_by_a_log():
    g, d, g_opt, d_opt = gan()
    log = []

    def step():
        fake = g(torch.randn(32, 16))
        d_opt.zero_grad()
        (d(torch.randn(32, 128)).mean() - d(fake.detach()).mean()).backward()
        d_opt.step()
        d_opt.zero_grad()
        g_opt.zero_grad()
        (-d(fake).mean()).backward()
        log.append([p.grad.norm().item() for p in d.parameters()])
        g_opt.step()

    return step


def accumulation_over_several_steps():
    model, opt = optimized(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)), lr=0.1)

    def step(number):
        (model(torch.randn(8, 32)).square().mean() / 4).backward()
        if number % 4 == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()

    return numbered(step)


def sharpness_aware():
    model, opt = optimized(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)), lr=0.1)

    def step():
        x, y = torch.randn(64, 64), torch.randint(0, 8, (64,))
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            moves = [0.05 * p.grad / (p.grad.norm() + 1e-6) for p in model.parameters()]
            for p, e in zip(model.parameters(), moves):
                p.add_(e)
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for p, e in zip(model.parameters(), moves):
                p.sub_(e)
        opt.step()

    return step


def checkpointed_blocks():
    blocks = nn.ModuleList([nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)) for _ in range(3)])

    def loss():
        x = torch.randn(32, 64, requires_grad=True)
        for number, block in enumerate(blocks):
            x = x + checkpoint(block, x, use_reentrant=number == 1)
        return x.square().mean()

    return trained_with(torch.optim.AdamW(blocks.parameters()), loss)


def generator_in_every_second_step_whose_critic_takes_both():
    g, d, g_opt, d_opt = gan()
    done = itertools.count()

    def step():
        fake = g(torch.randn(32, 16))
        d(fake.detach()).square().mean().backward()
        if next(done) % 2 == 0:
            trained_once(d, g_opt, fake)
        d_opt.step()
        d_opt.zero_grad()

    return step


def gradients_of_three_steps_used_in_the_fourth_of_some_parameters():
    """Steps of three kinds, and gradients that go on over the end of the pass."""
    g, d, g_opt, d_opt = gan()
    done = itertools.count()

    def step():
        number = next(done)
        fake = g(torch.randn(32, 16))
        g_opt.zero_grad()
        d(fake).mean().backward(inputs=list(g.parameters()))
        g_opt.step()
        d(fake.detach()).square().mean().backward()
        if number % 3 == 2:
            d_opt.step()
            d_opt.zero_grad()

    return step
