import contextlib

import torch

from tests.rules.programs import optimized, ranked, trained_by


def only_the_last_micro_batch_is_averaged():
    model, optimizer = optimized(ranked(8, 16, 4), torch.optim.AdamW)

    def step():
        optimizer.zero_grad()
        for micro in range(4):
            with model.no_sync() if micro < 3 else contextlib.nullcontext():
                (model(torch.randn(8, 8)).square().mean() / 4).backward()
        optimizer.step()

    return step


def one_backward_of_several_forwards():
    model = ranked(8, 4)

    def loss():
        with torch.no_grad():
            target = model(torch.randn(8, 8))
        return (model(torch.randn(8, 8)) - target).square().mean()

    return trained_by(model, loss)


def two_modules_with_a_loss_each():
    first, second = ranked(8, 4), ranked(4, 2)
    optimizers = [torch.optim.SGD(each.parameters(), lr=1e-3) for each in (first, second)]

    def step():
        x = first(torch.randn(8, 8))
        x.square().mean().backward(retain_graph=False)
        optimizers[0].step()
        second(x.detach()).square().mean().backward()
        optimizers[1].step()
        for each in optimizers:
            each.zero_grad()

    return step


def accumulation_of_a_plain_module():
    model, optimizer = optimized(torch.nn.Linear(8, 4))

    def step():
        optimizer.zero_grad()
        for _ in range(4):
            model(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()

    return step
