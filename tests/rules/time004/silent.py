import os
import tempfile
import threading
import time

import torch
from torch import nn


def flushed_and_not_synced():
    model, file = nn.Linear(8, 1), tempfile.TemporaryFile("w")

    def step():
        model(torch.ones(4, 8)).mean().backward()
        print("a step", file=file, flush=True)

    return step


def synced_at_the_end_of_a_log_interval():
    model, file, count = nn.Linear(8, 1), tempfile.TemporaryFile("w"), [0]

    def step():
        model(torch.ones(4, 8)).mean().backward()
        print("a step", file=file, flush=True)
        count[0] += 1
        if count[0] % 10 == 0:
            os.fsync(file.fileno())

    return step


def synced_by_a_thread():
    model, file, writing = nn.Linear(8, 1), tempfile.TemporaryFile("w"), []

    def write():
        print("a step", file=file, flush=True)
        os.fsync(file.fileno())

    def step():
        while writing:
            writing.pop().join()
        model(torch.ones(4, 8)).mean().backward()
        writing.append(threading.Thread(target=write, daemon=True))
        writing[0].start()

    return step


def nothing_to_write_in_a_long_step():
    model, file = nn.Linear(8, 1), tempfile.TemporaryFile("w")

    def step():
        model(torch.ones(4, 8)).mean().backward()
        time.sleep(0.05)
        os.fsync(file.fileno())

    return step
