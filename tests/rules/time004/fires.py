import itertools
import os
import tempfile
import time

from tests.rules.programs import behind_a_backward


def _slow(sync):
    def waits(file):
        time.sleep(0.004)  # a disk of any speed, or none
        sync(file)

    return waits


os.fsync = _slow(os.fsync)  # tests/rules/conftest.py puts it back
fsync = os.fsync


def log_of_every_step():
    file, done = tempfile.TemporaryFile("w"), itertools.count(1)

    def write(text):
        print(text, file=file, flush=True)
        os.fsync(file.fileno())  # TIME004

    return behind_a_backward(lambda loss: write(f"step {next(done)}"))
