"""Near misses: KERN008 must stay silent on all of these."""

import torch
from torch import nn


def _network(*more):
    return nn.Sequential(nn.Linear(8, 16), *more, nn.ReLU(), nn.Linear(16, 8))


def _stepping(net, loss_of):
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        loss_of(*torch.randn(3, 4, 8)).backward()
        optimizer.step()

    return step


def joined_already():
    net = _network()

    def loss_of(first, near, far):
        a, p, n = net(torch.cat([first, near, far])).chunk(3)
        return (a * (n - p)).mean()

    return _stepping(net, loss_of)


def two_views_of_a_batch():
    net = _network()

    def loss_of(first, near, far):
        a = net(first)
        b = net(near)
        return (a * b).mean()

    return _stepping(net, loss_of)


def batch_norm_sees_the_whole_batch():
    net = _network(nn.BatchNorm1d(16))

    def loss_of(first, near, far):
        a = net(first)
        p = net(near)
        n = net(far)
        return (a * (n - p)).mean()

    return _stepping(net, loss_of)


def each_call_refines_the_one_before():
    net = _network()

    def loss_of(first, near, far):
        once = net(first)
        twice = net(once)
        thrice = net(twice)
        return thrice.square().mean()

    return _stepping(net, loss_of)


def what_comes_between_uses_a_result():
    net = _network()

    def loss_of(first, near, far):
        a = net(first)
        near = near + a.detach()
        p = net(near)
        n = net(far)
        return (a * (n - p)).mean()

    return _stepping(net, loss_of)


def weights_are_updated_between():
    net = _network()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step():
        first, near, far = torch.randn(3, 4, 8)
        optimizer.zero_grad()
        a = net(first).mean().backward()
        b = net(near).mean().backward()
        c = net(far).mean().backward()
        optimizer.step()
        return a, b, c

    return step


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = _network()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        self.mean.lerp_(x.mean(0), 0.1)
        return self.net(x - self.mean)


def module_keeps_statistics():
    net = Counting()

    def loss_of(first, near, far):
        a = net(first)
        p = net(near)
        n = net(far)
        return (a * (n - p)).mean()

    return _stepping(net, loss_of)


def sequences_of_different_lengths():
    net = _network()

    def loss_of(first, near, far):
        a = net(first[None])
        p = net(near[None, :3])
        n = net(far[None, :2])
        return a.mean() + p.mean() + n.mean()

    return _stepping(net, loss_of)


def large_batches():
    net = _network()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step():
        first, near, far = torch.randn(3, 2048, 8)
        optimizer.zero_grad()
        a = net(first)
        p = net(near)
        n = net(far)
        (a * (n - p)).mean().backward()
        optimizer.step()

    return step


def three_modules():
    nets = nn.ModuleList(_network() for _ in range(3))
    one, two, three = nets

    def loss_of(first, near, far):
        a = one(first)
        p = two(near)
        n = three(far)
        return (a * (n - p)).mean()

    return _stepping(nets, loss_of)


def another_module_follows_the_first_call():
    net, head = _network(), nn.Linear(8, 8)

    def loss_of(first, near, far):
        a = net(first)
        guided = head(a)
        p = net(near)
        n = net(far)
        return (guided * (n - p)).mean()

    return _stepping(nn.ModuleList([net, head]), loss_of)
