import torch
from torch import nn
from torch.distributions import Categorical, Normal, kl_divergence
from torch.nn import functional as F

from tests.rules.programs import losses
from tests.rules.train034.fires import _parts, _prior


def _q(encoder, x):
    mean, log_variance = encoder(x).chunk(2, -1)
    return Normal(mean, (0.5 * log_variance).exp())


@losses(_parts)
def with_its_gradient(encoder, decoder):
    x = torch.randn(5, 6)
    q = _q(encoder, x)
    return F.mse_loss(decoder(q.rsample()), x) + kl_divergence(q, _prior(q)).mean()


@losses(_parts)
def by_the_score_function(encoder, decoder):
    x = torch.randn(5, 6)
    q = _q(encoder, x)
    z = q.sample()
    error = (decoder(z) - x).square().mean(-1)
    score = (q.log_prob(z).sum(-1) * error.detach()).mean()
    return error.mean() + score + kl_divergence(q, _prior(q)).mean()


@losses(_parts)
def by_a_score_by_hand(encoder, decoder):
    x = torch.randn(5, 6)
    q = _q(encoder, x)
    z = q.sample()
    score = -((z - q.loc) / q.scale).square().sum(-1)
    error = (decoder(z) - x).square().mean(-1)
    return error.mean() + (score * error.detach()).mean() + q.scale.square().mean()


@losses(_parts)
def a_decoder_that_is_trained_alone(encoder, decoder):
    x = torch.randn(5, 6)
    return F.mse_loss(decoder(_q(encoder, x).sample()), x)


@losses(lambda: (nn.Linear(6, 8), nn.Linear(4, 1)))
def an_actor_with_a_critic(actor, critic):
    x = torch.randn(5, 6)
    policy = _q(actor, x)
    action = policy.sample()
    value = critic(action)[:, 0]
    chances = policy.log_prob(action).sum(-1) * value.detach()
    return (value - 1).square().mean() - chances.mean() - policy.entropy().mean()


@losses(lambda: nn.Linear(4, 8))
def actions_that_lead_to_the_next_state(policy):
    state, loss = torch.randn(5, 4), torch.zeros(())
    for _ in range(3):
        chosen = _q(policy, state)
        loss = loss + (chosen.mean - 1).square().mean()
        state = 0.9 * state + 0.1 * chosen.sample()
    return loss


@losses(lambda: (nn.Linear(6, 8), nn.Linear(8, 6)))
def codes_that_have_no_gradient_by_nature(encoder, decoder):
    x = torch.randn(5, 6)
    q = Categorical(logits=encoder(x))
    code = F.one_hot(q.sample(), 8).float()
    return F.mse_loss(decoder(code), x) - 0.1 * q.entropy().mean()


@losses(_parts)
def noise_of_a_fixed_size(encoder, decoder):
    x = torch.randn(5, 6)
    z = encoder(x)[:, :4]
    noise = Normal(torch.zeros(5, 4), torch.ones(5, 4)).sample()
    return F.mse_loss(decoder(z + 0.1 * noise), x) + z.square().mean()


@losses(_parts)
def a_sample_that_is_only_scored(encoder, decoder):
    x = torch.randn(5, 6)
    q = _q(encoder, x)
    far = (q.sample() - 1).square().mean()
    return F.mse_loss(decoder(q.rsample()), x) + kl_divergence(q, _prior(q)).mean() + far
