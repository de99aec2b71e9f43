import os
import tempfile
import time

import torch
from torch import nn


def _slow(sync):
    def waits(file):
        time.sleep(0.004)  # a disk of any speed, or none
        sync(file)

    return waits


os.fsync = _slow(os.fsync)  # tests/rules/conftest.py puts it back
fsync = os.fsync


def log_of_every_step():
    model, file, count = nn.Linear(8, 1), tempfile.TemporaryFile("w"), [0]

    def write(text):
        print(text, file=file, flush=True)
        os.fsync(file.fileno())  # TIME004

    def step():
        model(torch.ones(4, 8)).mean().backward()
        count[0] += 1
        write(f"step {count[0]}")

    return step


def by_an_imported_name_on_every_other_step():
    model, file, count = nn.Linear(8, 1), tempfile.TemporaryFile("w"), [0]

    def step():
        model(torch.ones(4, 8)).mean().backward()
        count[0] += 1
        if count[0] % 2:
            for part in range(4):
                print(part, file=file, flush=True)
                fsync(file)  # TIME004

    return step
