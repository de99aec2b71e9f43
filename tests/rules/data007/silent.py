import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import Made, endless, fed
from tests.timeline.kineto import kernel, loop, note, product, text

ROWS = TensorDataset(torch.ones(4000, 8))


def loader_without_workers_that_is_quick():
    return fed(DataLoader(ROWS, batch_size=4))


def slow_first_batch_only():
    first = [True]

    def collate(rows):
        if first:
            time.sleep(0.1)
            first.clear()
        return torch.stack(rows)

    loader = DataLoader(list(torch.ones(4000, 8)), batch_size=4, collate_fn=collate)
    # slow steps, so that a busy machine does not make the other batches slow too
    return fed(loader, behind=lambda: time.sleep(0.02))


def worker_that_keeps_up():
    return fed(DataLoader(ROWS, batch_size=4, num_workers=1), behind=lambda: time.sleep(0.03))


def short_epochs_whose_worker_stays():
    data = list(torch.ones(24, 8))
    loader = DataLoader(data, batch_size=4, num_workers=1, persistent_workers=True)
    return fed(endless(loader), behind=lambda: time.sleep(0.03))


def loops_in_the_collate_function_over_few_numbers():
    def collate(rows):
        kernel = torch.zeros(len(rows), 8)
        for number, row in enumerate(rows):
            for place in (0, 1):
                kernel[number, place] = row[place]
        return kernel

    loader = DataLoader(list(torch.ones(4000, 8)), batch_size=2, collate_fn=collate)
    return fed(loader, behind=lambda: time.sleep(0.02))


def no_loader_at_all():
    model = nn.Linear(8, 1)

    def step():
        time.sleep(0.002)
        model(torch.ones(4, 8)).mean().backward()

    return step


def cheap_samples_of_workers__no_note():
    return fed(DataLoader(ROWS, batch_size=4, num_workers=1), behind=lambda: time.sleep(0.01))


def _loading(number, start, waits, busy=0):
    """A step of 10 ms that waits for a batch first, while the device works on ``busy`` us of the step before."""
    loader = note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start + 10, waits)
    before = [kernel("sgemm", start, busy, 0)] if busy else []
    return [loader, *before, *product(start + waits + 20, number, 500)]


def wait_that_the_device_does_not_notice__trace():
    return text(loop(4, 10_000.0, lambda number, start: _loading(number, start, 5000, busy=5500)))


def steps_that_last_as_long_as_an_operator__trace():
    return text(loop(4, 1000.0, lambda number, start: _loading(number, start, 300)))


def first_batch_is_slow__trace():
    return text(loop(4, 10_000.0, lambda number, start: _loading(number, start, 9000 if number == 1 else 50)))


def one_burst_alone__trace():
    """A fifth of the time in one step of four (a note): it may be the beginning of an epoch."""
    return text(loop(4, 10_000.0, lambda number, start: _loading(number, start, 9000 if number == 3 else 50)))


def steps_guessed_from_the_optimizer__trace():
    def body(number, start):
        return [*_loading(number, start, 5000), note("Optimizer.step#SGD.step", start + 9000, 900)]

    return text([event for event in loop(5, 10_000.0, body) if not event["name"].startswith("ProfilerStep")])


def trace_that_marks_no_steps__trace():
    return text([event for number in range(4) for event in _loading(number, 10_000.0 * number, 5000)])
