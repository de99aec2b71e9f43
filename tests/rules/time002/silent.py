"""Near misses: TIME002 must stay silent on all of these."""

import time

import torch
from torch import nn

from tests.timeline.kineto import note, product, text


def every_step_takes_its_time():
    model = nn.Linear(8, 1)

    def step():
        time.sleep(0.01)
        model(torch.ones(4, 8)).mean().backward()

    return step


def one_slow_step():
    model, count = nn.Linear(8, 1), [0]

    def step():
        count[0] += 1
        time.sleep(0.03 if count[0] == 7 else 0.005)
        model(torch.ones(4, 8)).mean().backward()

    return step


def every_second_step_is_another_kind():
    model, count = nn.Linear(8, 1), [0]

    def step():
        count[0] += 1
        time.sleep(0.03 * (count[0] % 2))
        model(torch.ones(4, 8)).mean().backward()

    return step


def validation_that_nothing_explains():
    model, count = nn.Linear(8, 1), [0]

    def step():
        count[0] += 1
        time.sleep(0.05 if count[0] % 4 == 0 else 0.002)
        model(torch.ones(4, 8)).mean().backward()

    return step


def _slow(steps, on, us=40_000.0, loading=False):
    """Marked steps of 10 ms, those ``on`` of ``us``; the time is waited for a loader, or not explained."""
    events, start = [], 1000.0
    for number in range(steps):
        length = us if number in on else 10_000.0
        waits = length - 5000 if loading else 10
        loader = note("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", start, waits)
        events += [note(f"ProfilerStep#{number}", start, length), loader, *product(start + waits, number + 1, 4000)]
        start += length
    return text(events)


def first_step_of_the_trace__trace():
    return _slow(24, on=(0, 1), loading=True)


def too_few_steps__trace():
    return _slow(6, on=(2, 4), loading=True)


def half_of_the_steps_wait__trace():
    return _slow(24, on=range(0, 24, 2), loading=True)


def slow_for_no_reason_that_is_known__trace():
    return _slow(24, on=(5, 11, 20))
