import contextlib

import torch
from torch import nn

from tests.rules.programs import optimized, trained_on_noise

BACKEND = "eager"


def chooses_without_a_branch():
    net = nn.Linear(16, 16)

    @torch.compile(backend=BACKEND)
    def forward(x):
        h = net(x)
        return torch.where(h.sum() > 0, h * 0.5, h)

    return trained_on_noise(forward, net.parameters())


def prints_outside_of_the_region():
    net = nn.Linear(16, 16)
    compiled = torch.compile(net, backend=BACKEND)

    def forward(x):
        h = compiled(x)
        print(end="")
        return h

    return trained_on_noise(forward, net.parameters())


def prints_only_where_it_is_not_compiled():
    net = nn.Linear(16, 16)

    @torch.compile(backend=BACKEND)
    def forward(x):
        h = net(x)
        if not torch.compiler.is_compiling():
            print(end="")
        return h * 2

    return trained_on_noise(forward, net.parameters())


def asks_for_the_break():
    net = nn.Linear(16, 16)

    @torch.compile(backend=BACKEND)
    def forward(x):
        h = net(x)
        torch._dynamo.graph_break()
        return h * 2

    return trained_on_noise(forward, net.parameters())


def keeps_a_function_out_of_the_graph():
    net = nn.Linear(16, 16)

    @torch.compiler.disable
    def log(h):
        print(end="")

    @torch.compile(backend=BACKEND)
    def forward(x):
        h = net(x)
        log(h)
        return h * 2

    return trained_on_noise(forward, net.parameters())


def breaks_in_the_first_step_only():
    net, taken = nn.Linear(16, 16), [0]

    @torch.compile(backend=BACKEND)
    def forward(x, first):
        h = net(x)
        if first:
            print(end="")
        return h * 2

    def counted(x):
        taken[0] += 1
        return forward(x, taken[0] == 1)

    return trained_on_noise(counted, net.parameters())


def the_optimizer_breaks_its_own():
    net, optimizer = optimized(nn.Linear(16, 16), lr=0.01)

    @torch.compile(backend=BACKEND)
    def optimize():
        optimizer.step()

    def step():
        optimizer.zero_grad()
        net(torch.randn(4, 16)).square().mean().backward()
        optimize()

    return step


def a_backward_in_the_region():
    net, optimizer = optimized(nn.Linear(16, 16), lr=0.01)

    @torch.compile(backend=BACKEND)
    def both(x):
        loss = net(x).square().mean()
        loss.backward()
        return loss.detach()

    def step():
        optimizer.zero_grad()
        both(torch.randn(4, 16))
        optimizer.step()

    return step


def nothing_is_compiled():
    net = nn.Linear(16, 16)

    def forward(x):
        h = net(x)
        print(end="")
        return h

    return trained_on_noise(forward, net.parameters())


def autocast_around_the_call():
    net = nn.Linear(16, 16)
    compiled = torch.compile(net, backend=BACKEND)

    def forward(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return compiled(x).float()

    return trained_on_noise(forward, net.parameters())


def autocast_inside():
    net = nn.Linear(16, 16)

    @torch.compile(backend=BACKEND)
    def forward(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net(x).float()

    return trained_on_noise(forward, net.parameters())


def a_library_that_breaks_a_function_nobody_gave():
    net = nn.Linear(16, 16)

    def helper(x):
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
            return net(x).float()

    @torch.compile(backend=BACKEND)
    def forward(x):
        torch._dynamo.graph_break()
        return helper(net(x))

    return trained_on_noise(forward, net.parameters())
