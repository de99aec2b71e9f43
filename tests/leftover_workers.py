"""Workers of DataLoaders that a test leaves behind."""

import multiprocessing
import signal


def end_workers() -> None:
    """End the workers of loaders that are left in a cycle: when these are collected, torch
    waits five seconds for each. It must not hear of it, or it would raise.
    """
    workers = multiprocessing.active_children()
    heard = signal.signal(signal.SIGCHLD, signal.SIG_DFL) if workers else None
    for worker in workers:
        worker.kill()
        worker.join()
    if workers:
        signal.signal(signal.SIGCHLD, heard)
