import torch
from torch import nn
from torch.distributions import Categorical, Normal, kl_divergence
from torch.nn import functional as F

from tests.rules.programs import losses
from tests.rules.train034.fires import _by, _parts, _prior, _smooth


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


@losses(lambda: _smooth(2))
def a_second_derivative_with_its_graph(net):
    x = torch.rand(20, 2, requires_grad=True)
    u = net(x)
    first = _by(u, x, create_graph=True)
    second = _by(first[:, :1], x, create_graph=True)
    return (first[:, 1:] - 0.1 * second[:, :1] + u).square().mean()


@losses(lambda: _smooth(3))
def an_attack_that_the_model_is_given(net):
    x = torch.rand(8, 3, requires_grad=True)
    out = net(x)
    slope = _by(out, x, retain_graph=True)
    return out.square().mean() + net(x + 0.1 * slope).square().mean()


@losses(lambda: _smooth(3))
def a_penalty_that_is_only_printed(critic):
    x = torch.rand(8, 3, requires_grad=True)
    out = critic(x)
    float((_by(out, x, retain_graph=True).norm(2, dim=1) - 1).square().mean())
    return out.mean() - critic(torch.randn(8, 3)).mean()


@losses(lambda: _smooth(3))
def a_derivative_that_is_detached(net):
    x = torch.rand(8, 3, requires_grad=True)
    out = net(x)
    return (out - _by(out, x, retain_graph=True).detach().sum(1, keepdim=True)).square().mean()


@losses(lambda: _smooth(3))
def weights_of_samples_by_their_slope(net):
    x = torch.rand(8, 3, requires_grad=True)
    out = net(x)
    weights = 1 / (1 + _by(out, x, retain_graph=True).norm(dim=1, keepdim=True))
    return (weights * (out - 1).square()).mean()


@losses(lambda: _smooth(3))
def weights_of_terms_by_gradients_of_parameters(net):
    near, far = net(torch.rand(8, 3)).square().mean(), (net(torch.rand(8, 3)) - 1).abs().mean()
    sizes = [
        torch.autograd.grad(each, net[2].weight, retain_graph=True)[0].norm()
        for each in (near, far)
    ]
    return near + far * sizes[0] / (sizes[1] + 1e-6) + (sizes[0] - sizes[1]).abs()


@losses(lambda: (_smooth(3), _smooth(3)))
def slopes_of_another_network(student, teacher):
    x = torch.rand(8, 3, requires_grad=True)
    slope = _by(teacher(x), x)
    out = student(x)
    own = _by(out, x, create_graph=True)
    return F.mse_loss(own, slope) + out.square().mean()


@losses(lambda: nn.Linear(4, 3))
def a_code_that_is_fitted_in_an_inner_step(net):
    code = torch.zeros(8, 4, requires_grad=True)
    code = code - 0.1 * torch.autograd.grad((net(code) - 1).square().mean(), code)[0]
    return net(code).square().mean() + 0.1 * code.square().mean()
