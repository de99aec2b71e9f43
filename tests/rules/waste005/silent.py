import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.rules.programs import trained_by, trained_with


def random_tensors_and_dropout():
    model = nn.Sequential(nn.Linear(64, 128), nn.Dropout(0.5), nn.ReLU(), nn.Linear(128, 64))

    def loss():
        x = torch.randn(64, 64)
        noise = torch.zeros(64, 64).normal_() * 0.1
        first, second = model(x + noise), model(x + noise)
        return F.mse_loss(first, x) + F.mse_loss(first, second)

    return trained_with(torch.optim.Adam(model.parameters()), loss)


def gradient_cache():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32))

    def loss():
        x = torch.randn(64, 64)
        with torch.no_grad():
            reps = model(x)
        reps = reps.requires_grad_()
        F.cross_entropy(reps @ reps.t(), torch.arange(64)).backward()
        return (model(x) * reps.grad).sum()

    return trained_by(model, loss)


def sharpness_aware():
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

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


def gradient_of_the_input_and_then_the_loss():
    model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 8))

    def sensitivity(x):
        x = x.detach().requires_grad_(True)
        (given,) = torch.autograd.grad(model(x).sum(), x)
        return given.norm(dim=1).detach()

    def loss():
        x, y = torch.randn(64, 32), torch.randn(64, 8)
        weight = 1.0 / (1.0 + sensitivity(x))
        return (weight * (model(x) - y).square().mean(1)).mean()

    return trained_with(torch.optim.Adam(model.parameters()), loss)


def critic_on_the_attached_and_the_detached_sample():
    maker, critic = nn.Linear(16, 64), nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))
    opt = torch.optim.SGD([*maker.parameters(), *critic.parameters()], lr=0.01)

    def step():
        made, true = maker(torch.randn(64, 16)), torch.randn(64, 64)
        fools = F.softplus(-critic(made)).mean()
        told = F.softplus(critic(made.detach())).mean() + F.softplus(-critic(true)).mean()
        opt.zero_grad()
        maker_gradients = torch.autograd.grad(fools, list(maker.parameters()), retain_graph=True)
        told.backward()
        for parameter, gradient in zip(maker.parameters(), maker_gradients):
            parameter.grad = gradient
        opt.step()

    return step


def evaluation_of_the_input_that_is_trained_on():
    first, last = nn.Linear(64, 256), nn.Linear(256, 256)
    x, seen = torch.randn(128, 64), []

    def net(training):
        h = first(x).relu()
        return last(F.dropout(h, 0.5) if training else h).square().mean()

    def loss():
        with torch.no_grad():
            seen.append(net(False).item())
        return net(True)

    return trained_with(torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.1), loss)


def evaluation_with_gradients_on():
    first, last = nn.Linear(64, 256), nn.Linear(256, 256)
    x, seen = torch.randn(128, 64), []

    def net(training):
        h = first(x).relu()
        return last(F.dropout(h, 0.5) if training else h).square().mean()

    def loss():
        seen.append(net(False).item())
        return net(True)

    return trained_with(torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.1), loss)
