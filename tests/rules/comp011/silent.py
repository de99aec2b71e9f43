"""COMP011 must stay silent here."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.echo_group import ranks

BACKEND = "aot_eager"


def _net():
    return nn.Sequential(*[nn.Linear(128, 128) for _ in range(6)])


def _wrapped(model, **options):
    ranks()
    return DistributedDataParallel(model, bucket_cap_mb=0.1, **options)


def _trained(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        model(torch.randn(4, 128)).square().mean().backward()
        optimizer.step()

    return step


def nothing_is_compiled():
    return _trained(_wrapped(_net()))


def layers_that_are_compiled_one_by_one():
    net = _net()
    for layer in net:
        layer.compile(backend=BACKEND)
    net(torch.randn(4, 128))
    return _trained(_wrapped(net))


def one_bucket():
    ranks()
    compiled = torch.compile(_net(), backend=BACKEND)
    compiled(torch.randn(4, 128))
    return _trained(DistributedDataParallel(compiled))


def a_backend_whose_graph_is_pytorchs():
    compiled = torch.compile(_net(), backend="eager")
    compiled(torch.randn(4, 128))
    return _trained(_wrapped(compiled))


def tried_without_gradients():
    """Training is compiled anew beneath DDP."""
    layers = [nn.Linear(512, 512) for _ in range(6)]
    compiled = torch.compile(nn.Sequential(*layers), backend=BACKEND)
    with torch.no_grad():
        compiled(torch.randn(4, 512))
    ranks()
    model = DistributedDataParallel(compiled, bucket_cap_mb=2.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        model(torch.randn(4, 512)).square().mean().backward()
        optimizer.step()

    return step


def compiled_around_it():
    ranks()
    layers = [nn.Linear(512, 512) for _ in range(6)]
    inner = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=2.1)
    model = torch.compile(inner, backend=BACKEND)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        model(torch.randn(4, 512)).square().mean().backward()
        optimizer.step()

    return step


def compiled_inside_it():
    ranks()
    layers = [nn.Linear(512, 512) for _ in range(6)]
    compiled = torch.compile(nn.Sequential(*layers), backend=BACKEND)
    model = DistributedDataParallel(compiled, bucket_cap_mb=2.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        model(torch.randn(4, 512)).square().mean().backward()
        optimizer.step()

    return step
