import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F

from tests.rules.programs import losses


def _parts():
    return nn.Linear(6, 8), nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))


def _prior(q):
    return Normal(torch.zeros_like(q.loc), torch.ones_like(q.scale))


@losses(_parts)
def a_variational_encoder(encoder, decoder):
    x = torch.randn(5, 6)
    mean, log_variance = encoder(x).chunk(2, -1)
    q = Normal(mean, (0.5 * log_variance).exp())
    z = q.sample()  # TRAIN034
    return F.mse_loss(decoder(z), x) + kl_divergence(q, _prior(q)).mean()


@losses(_parts)
def with_the_divergence_by_hand(encoder, decoder):
    x = torch.randn(5, 6)
    mean, scale = encoder(x).split(4, dim=-1)
    scale = F.softplus(scale)
    z = torch.distributions.Independent(Normal(mean, scale), 1).sample()  # TRAIN034
    divergence = 0.5 * (mean**2 + scale**2 - 2 * scale.log() - 1).sum(-1)
    return F.mse_loss(decoder(torch.cat([z[:, :2], z[:, 2:]], -1)), x) + divergence.mean()


@losses(_parts)
def drawn_by_a_function(encoder, decoder):
    x = torch.randn(5, 6)
    mean, log_variance = encoder(x).chunk(2, -1)
    z = torch.normal(mean, torch.exp(0.5 * log_variance))  # TRAIN034
    divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(-1)
    return F.mse_loss(decoder(z), x) + divergence.mean()


def _by(out, x, **how):
    return torch.autograd.grad(out, x, torch.ones_like(out), **how)[0]


def _smooth(inputs):
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, 1))


@losses(lambda: _smooth(2))
def a_second_derivative_in_a_residual(net):
    x = torch.rand(20, 2, requires_grad=True)
    u = net(x)
    first = _by(u, x, create_graph=True)
    second = torch.autograd.grad(first[:, 0].sum(), x, retain_graph=True)[0]  # TRAIN034
    residual = first[:, 1:] - 0.1 * second[:, :1] + u
    return residual.square().mean() + (net(torch.rand(5, 2)) - 1).square().mean()


@losses(lambda: _smooth(3))
def a_gradient_penalty(critic):
    real, fake = torch.randn(8, 3), torch.rand(8, 3)
    between = real.lerp(fake, torch.rand(8, 1)).requires_grad_()
    slope = torch.autograd.grad(critic(between).sum(), between)[0]  # TRAIN034
    penalty = (slope.norm(2, dim=1) - 1).square().mean()
    return critic(fake).mean() - critic(real).mean() + 10 * penalty


@losses(lambda: _smooth(3))
def forces_beside_an_energy(net):
    positions = torch.randn(8, 5, 3, requires_grad=True)
    energy = net(positions).sum((1, 2))
    (slope,) = torch.autograd.grad([energy.sum()], [positions], retain_graph=True)  # TRAIN034
    return F.mse_loss(energy, torch.zeros(8)) + F.l1_loss(-slope, torch.ones(8, 5, 3))
