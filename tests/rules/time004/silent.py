import itertools
import os
import tempfile
import threading
import time

from tests.rules.programs import behind_a_backward


def _writing(then):
    file = tempfile.TemporaryFile("w")

    def after(loss):
        print("a step", file=file, flush=True)
        then(file)

    return behind_a_backward(after)


def flushed_and_not_synced():
    return _writing(lambda file: None)


def synced_at_the_end_of_a_log_interval():
    done = itertools.count(1)
    return _writing(lambda file: next(done) % 10 or os.fsync(file.fileno()))


def synced_by_a_thread():
    writing = []

    def sync(file):
        while len(writing) > 1:
            writing.pop(0).join()
        writing.append(threading.Thread(target=lambda: os.fsync(file.fileno()), daemon=True))
        writing[-1].start()

    return _writing(sync)


def nothing_to_write_in_a_long_step():
    file = tempfile.TemporaryFile("w")

    def after(loss):
        time.sleep(0.05)
        os.fsync(file.fileno())

    return behind_a_backward(after)
