"""TIME002 must report each of these."""

import gc
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.timeline.kineto import note, product, text


def collector_that_runs_now_and_then():
    model, count = nn.Linear(8, 1), [0]
    records = [[number] for number in range(400_000)]

    def step():
        count[0] += 1
        model(torch.ones(4, 8)).mean().backward()
        if count[0] % 4 == 0:
            gc.collect()
        return len(records)

    return step


def loader_that_stumbles():
    class SomeAreSlow(Dataset):
        """Every fourth sample takes 80 ms to make."""

        def __len__(self):
            return 4000

        def __getitem__(self, index):
            time.sleep(0.08 if index % 4 == 3 else 0)  # TIME002
            return torch.full((8,), float(index))

    model, batches = nn.Linear(8, 1), iter(DataLoader(SomeAreSlow()))

    def step():
        model(next(batches)).mean().backward()

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


def loader_that_stumbles_in_a_trace__trace():
    return _slow(24, on=(5, 11, 20), loading=True)
