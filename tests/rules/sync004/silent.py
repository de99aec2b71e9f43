import contextlib
import itertools

import torch
from torch import nn

from tests.rules.programs import behind_a_backward


def guarded_by_a_check_for_a_gpu():
    def after(loss):
        if loss.is_cuda:
            torch.cuda.synchronize()

    return behind_a_backward(after)


def every_fiftieth_step():
    done = itertools.count(1)

    def after(loss):
        if next(done) % 50 == 0:
            with contextlib.suppress(AssertionError, RuntimeError):
                torch.cuda.synchronize()

    return behind_a_backward(after)


def a_method_of_the_same_name():
    class Workers:
        def synchronize(self):
            return None

    workers = Workers()
    return behind_a_backward(lambda loss: workers.synchronize())


def once_before_the_loop__cuda():
    model, x = nn.Linear(64, 64, device="cuda"), torch.ones(8, 64, device="cuda")
    torch.cuda.synchronize()
    return lambda: model(x).mean().backward()


def a_copy_that_is_read_one_step_late__rehearsal():
    host, copied, losses = torch.empty((), pin_memory=True), torch.cuda.Event(), []

    def after(loss):
        if losses or copied.query():
            copied.synchronize()
            losses.append(float(host))
        host.copy_(loss.detach(), non_blocking=True)
        copied.record()

    return behind_a_backward(after, "cuda")


def a_stream_of_copies_beside_the_work__rehearsal():
    side = torch.cuda.Stream()
    return behind_a_backward(lambda loss: side.synchronize(), "cuda")
