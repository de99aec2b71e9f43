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
