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
    return lambda: model(x).mean().backward()


def a_copy_that_is_read_one_step_late__rehearsal():
    model, x = nn.Linear(64, 64, device="cuda"), torch.ones(8, 64, device="cuda")
    host, copied, losses = torch.empty((), pin_memory=True), torch.cuda.Event(), []

    def step():
        loss = model(x).square().mean()
        loss.backward()
        if losses or copied.query():
            copied.synchronize()
            losses.append(float(host))
        host.copy_(loss.detach(), non_blocking=True)
        copied.record()

    return step


def a_stream_of_copies_beside_the_work__rehearsal():
    model, x, side = nn.Linear(64, 64, device="cuda"), torch.ones(8, 64, device="cuda"), torch.cuda.Stream()

    def step():
        model(x).mean().backward()
        side.synchronize()

    return step
