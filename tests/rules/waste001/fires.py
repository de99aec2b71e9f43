import itertools

import torch
from torch import nn

from tests.rules.programs import gan, trained_once


def gan_fake_not_detached():
    g, d, g_opt, d_opt = gan()
    bce = nn.BCEWithLogitsLoss()

    def step():
        real = torch.randn(32, 128)
        fake = g(torch.randn(32, 16))
        d_opt.zero_grad()
        on_real = d(real)
        on_fake = d(fake)  # WASTE001
        d_loss = bce(on_real, torch.ones(32, 1)) + bce(on_fake, torch.zeros(32, 1))
        d_loss.backward()
        d_opt.step()
        for p in d.parameters():
            p.requires_grad_(False)
        g_opt.zero_grad()
        g_loss = bce(d(g(torch.randn(32, 16))), torch.ones(32, 1))
        g_loss.backward()
        g_opt.step()
        for p in d.parameters():
            p.requires_grad_(True)

    return step


def wgan_convolutions_zeroed_in_place():
    class _ConvGan:
        def __init__(self):
            self.g = nn.Sequential(
                nn.ConvTranspose2d(8, 16, 4), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2)
            )
            self.d = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 3))
            self.g_opt = torch.optim.RMSprop(self.g.parameters(), lr=1e-4)
            self.d_opt = torch.optim.RMSprop(self.d.parameters(), lr=1e-4)

        def critic(self, real):
            fake = self.g(torch.randn(8, 8, 1, 1))
            loss = self.d(fake.detach()).mean() - self.d(real).mean()
            self.d_opt.zero_grad(set_to_none=False)
            loss.backward()
            self.d_opt.step()

        def generator(self):
            loss = -self.d(self.g(torch.randn(8, 8, 1, 1))).mean()
            self.g_opt.zero_grad(set_to_none=False)
            loss.backward()  # WASTE001
            self.g_opt.step()

    gan = _ConvGan()

    def step():
        gan.critic(torch.randn(8, 3, 10, 10))
        gan.generator()

    return step


def generator_in_every_second_step_fills_discriminator():
    g, d, g_opt, d_opt = gan()
    bce, done = nn.BCEWithLogitsLoss(), itertools.count()

    def step():
        real = torch.randn(32, 128)
        fake = g(torch.randn(32, 16))
        d_opt.zero_grad()
        d_loss = bce(d(real), torch.ones(32, 1)) + bce(d(fake.detach()), torch.zeros(32, 1))
        d_loss.backward()
        d_opt.step()
        if next(done) % 2 == 0:
            g_opt.zero_grad()
            g_loss = bce(d(fake), torch.ones(32, 1))
            g_loss.backward()  # WASTE001
            g_opt.step()

    return step


def policy_twice_in_a_row_fills_its_critic():
    """What the pass ends with may still be read; the rounds before were cleared."""
    actor, critic = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4)), nn.Linear(20, 1)
    a_opt, c_opt = (torch.optim.Adam(each.parameters(), lr=1e-3) for each in (actor, critic))
    done = itertools.count(1)

    def step():
        state, action = torch.randn(64, 16), torch.randn(64, 4)
        if next(done) % 2 == 0:
            for _ in range(2):
                trained_once(critic, c_opt, torch.cat([state, action], 1))
        a_opt.zero_grad()
        (-critic(torch.cat([state, actor(state)], 1)).mean()).backward()  # WASTE001
        a_opt.step()

    return step
