import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel

from tests.echo_group import ranks
from tests.rules.programs import optimized, ranked, trained_by


def the_first_micro_batch_is_averaged():
    model, optimizer = optimized(ranked(8, 16, 4), torch.optim.AdamW)

    def averaging(micro):
        if micro % 4 == 0:
            return contextlib.nullcontext()
        return model.no_sync()  # DIST013

    def step():
        for micro in range(4):
            with averaging(micro):
                (model(torch.randn(8, 8)).square().mean() / 4).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def the_last_group_of_an_epoch_is_too_small():
    model, optimizer = optimized(ranked(8, 4))

    def update(x, last):
        with model.no_sync() if not last else contextlib.nullcontext():  # DIST013
            (model(x).square().mean() / 2).backward()

    def step():
        for number in range(5):
            update(torch.randn(8, 8), number % 2 == 1)
            if number % 2 == 1 or number == 4:
                optimizer.step()
                optimizer.zero_grad()

    return step


def all_of_them_inside():
    model, optimizer = optimized(ranked(8, 4))

    def step():
        optimizer.zero_grad()
        with model.no_sync():  # DIST013
            for _ in range(2):
                model(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()

    return step


def the_flag_is_set_by_hand():
    model, optimizer = optimized(ranked(8, 4))

    def step():
        for micro in range(3):
            model.require_backward_grad_sync = micro == 1
            loss = model(torch.randn(8, 8)).square().mean()
            loss.backward()  # DIST013
        optimizer.step()
        optimizer.zero_grad()

    return step


def the_wrapper_is_gone_round():
    model = ranked(8, 16, 4)
    return trained_by(model, lambda: model.module(torch.randn(8, 8)).square().mean())  # DIST013


def a_method_of_the_inner_module():
    class Scored(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.score = torch.nn.Linear(8, 1)

        def forward(self, x):
            return self.score(x)

        def loss(self, x):
            return self.score(x).square().mean()  # DIST013

    ranks()
    model, optimizer = optimized(DistributedDataParallel(Scored()))

    def step():
        optimizer.zero_grad()
        for _ in range(2):
            model.module.loss(torch.randn(8, 8)).backward()
        optimizer.step()
        with torch.no_grad():
            model(torch.randn(8, 8))

    return step
