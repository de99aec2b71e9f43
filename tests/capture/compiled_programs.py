"""Programs that compile: each makes a step that returns its loss."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

Step = Callable[[], torch.Tensor]


def _net() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.head = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


def _stepping(backward: Step, optimizer: Any, **how: Any) -> Step:
    """Steps of which ``backward`` makes the gradients and gives the loss."""

    def step() -> torch.Tensor:
        optimizer.zero_grad(**how)
        loss = backward()
        optimizer.step()
        return loss.detach()

    return step


def _trained(forward: Any, parameters: Any, **how: Any) -> Step:
    x = torch.randn(8, 16)
    return _stepping(_walked(lambda: forward(x)), torch.optim.AdamW(parameters, 1e-2), **how)


def _walked(forward: Step) -> Step:
    def backward() -> torch.Tensor:
        loss = forward().square().mean()
        loss.backward()
        return loss

    return backward


def _sgd(net: nn.Module) -> Any:
    return torch.optim.SGD(net.parameters(), 1e-2)


def model(backend: str) -> Step:
    net = _net()
    return _trained(torch.compile(net, backend=backend), net.parameters())


def in_place(backend: str) -> Step:
    net = Net()
    net.compile(backend=backend)
    return _trained(net, net.parameters(), set_to_none=False)


def regional(backend: str) -> Step:
    net = Net()
    for number, layer in enumerate(net.layers):
        net.layers[number] = torch.compile(layer, backend=backend)
    return _trained(net, net.parameters())


def forward_with_a_break(backend: str) -> Step:
    net = _net()

    @torch.compile(backend=backend)
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = net(x)
        print(end="")
        return y * 2

    return _trained(forward, net.parameters())


def _optimized(stepped: Callable[[Any], Callable[[], Any]], kind: Any = torch.optim.AdamW) -> Step:
    net = _net()
    optimizer = kind(net.parameters(), 1e-2)
    x, optimize = torch.randn(8, 16), stepped(optimizer)

    def step() -> torch.Tensor:
        loss = net(x).square().mean()
        loss.backward()
        optimize()
        optimizer.zero_grad()
        return loss.detach()

    return step


def optimizer(backend: str) -> Step:
    def stepped(optimizer: Any) -> Callable[[], Any]:
        @torch.compile(backend=backend)
        def optimize() -> None:
            optimizer.step()

        return optimize

    return _optimized(stepped)


def method_of_the_optimizer(backend: str) -> Step:
    return _optimized(
        lambda optimizer: torch.compile(optimizer.step, backend=backend), torch.optim.Adam
    )


def whole_step(backend: str) -> Step:
    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), 1e-2, momentum=0.9)
    x = torch.randn(8, 16)

    @torch.compile(backend=backend)
    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def forward_and_backward(backend: str) -> Step:
    net, x = _net(), torch.randn(8, 16)

    @torch.compile(backend=backend)
    def both() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = net(x).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        return loss.detach()

    return _stepping(both, _sgd(net))


def compiled_backward(backend: str) -> Step:
    """The graph of the backward is captured as well."""
    net, x = _net(), torch.randn(8, 16)
    both = torch.compile(_walked(lambda: net(x)), backend=backend)

    def backward() -> torch.Tensor:
        import torch._dynamo

        with torch._dynamo.config.patch(compiled_autograd=True):
            return both()

    return _stepping(backward, _sgd(net))


def with_checkpoints(backend: str) -> Step:
    net = Net()

    def forward(x: torch.Tensor) -> torch.Tensor:
        for layer in net.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return net.head(x)

    return _trained(torch.compile(forward, backend=backend), net.parameters())


def with_hooks(backend: str) -> Step:
    net = _net()
    net[0].register_forward_hook(lambda module, given, out: out * 1.5)
    return _trained(torch.compile(net, backend=backend), net.parameters())


def lengths_that_vary(backend: str) -> Step:
    net, lengths = Net(), itertools.cycle((3, 4, 2))
    compiled = torch.compile(net, backend=backend)
    return _stepping(_walked(lambda: compiled(torch.randn(8, next(lengths), 16))), _sgd(net))


PROGRAMS = {
    each.__name__: each
    for each in (
        *(model, in_place, regional, forward_with_a_break, optimizer, method_of_the_optimizer),
        *(whole_step, forward_and_backward, compiled_backward, with_checkpoints, with_hooks),
        lengths_that_vary,
    )
}
