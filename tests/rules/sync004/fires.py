import time

import torch
from torch import nn

from tests.rules.programs import optimized


def _computing(behind, size=64):
    model, x = nn.Linear(size, size, device="cuda"), torch.ones(size // 4, size, device="cuda")

    def step():
        model(x).mean().backward()
        behind()

    return step


def timed_with_a_host_clock__cuda():
    model, x, times = nn.Linear(64, 64, device="cuda"), torch.ones(8, 64, device="cuda"), []

    def step():
        begin = time.perf_counter()
        model(x).mean().backward()
        torch.cuda.synchronize()  # SYNC004
        times.append(time.perf_counter() - begin)

    return step


def synchronized_before_the_optimizer__cuda():
    model, optimizer = optimized(nn.Linear(64, 64, device="cuda"))
    x = torch.ones(8, 64, device="cuda")

    def step():
        optimizer.zero_grad()
        model(x).mean().backward()
        torch.cuda.synchronize()  # SYNC004
        optimizer.step()

    return step


def through_the_accelerator__rehearsal():
    return _computing(lambda: torch.accelerator.synchronize(), 256)  # SYNC004


def an_event_that_was_just_recorded__rehearsal():
    model, x, times = nn.Linear(64, 64, device="cuda"), torch.ones(8, 64, device="cuda"), []

    def step():
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        model(x).mean().backward()
        end.record()
        end.synchronize()  # SYNC004
        times.append(begin.elapsed_time(end))

    return step


def the_stream_that_work_goes_to__rehearsal():
    return _computing(lambda: torch.cuda.current_stream().synchronize())  # SYNC004
