"""Near misses: SYNC004 must stay silent on all of these."""

import contextlib

import torch
from torch import nn


def guarded_by_a_check_for_a_gpu():
    model = nn.Linear(8, 1)

    def step():
        model(torch.ones(4, 8)).mean().backward()
        if model.weight.is_cuda:
            torch.cuda.synchronize()

    return step


def every_fiftieth_step():
    model, count = nn.Linear(8, 1), [0]

    def step():
        model(torch.ones(4, 8)).mean().backward()
        count[0] += 1
        if count[0] % 50 == 0:
            with contextlib.suppress(AssertionError, RuntimeError):
                torch.cuda.synchronize()

    return step


def a_method_of_the_same_name():
    model = nn.Linear(8, 1)

    class Workers:
        def synchronize(self):
            return None

    workers = Workers()

    def step():
        model(torch.ones(4, 8)).mean().backward()
        workers.synchronize()

    return step


def once_before_the_loop__cuda():
    model, x = nn.Linear(64, 64, device="cuda"), torch.ones(8, 64, device="cuda")
    torch.cuda.synchronize()

    def step():
        model(x).mean().backward()

    return step
