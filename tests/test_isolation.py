"""A reader in a process of its own: results, errors, and every way to die."""

from __future__ import annotations

import faulthandler
import os
import signal
import time

import pytest

from auditor.evidence.scans import Tally
from auditor.extensions.checkpoints.contents import NotACheckpoint
from auditor.isolation import ReaderDied, isolated


def test_results_and_errors_come_through():
    assert isolated(lambda: (Tally(3, low=1.0), {"a": [1]}), (Tally,)) == (
        Tally(3, low=1.0),
        {"a": [1]},
    )
    with pytest.raises(NotACheckpoint, match="it is empty"):
        isolated(lambda: (_ for _ in ()).throw(NotACheckpoint("it is empty")), (NotACheckpoint,))


def test_the_parent_is_untouched():
    seen = []
    isolated(lambda: seen.append(1))
    assert not seen


def test_a_class_that_was_not_named_does_not_come_back():
    with pytest.raises(ReaderDied):
        isolated(lambda: Tally(3))


def deep():
    """A key of 300,000 nested tuples."""
    faulthandler.disable()
    key = ()
    for _ in range(300_000):
        key = (key,)
    return {key: 1}


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (deep, "died of it"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"),
        (lambda: os._exit(0), "no answer"),
        (lambda: bytes(3 << 30), "more memory"),
        (lambda: 1 // 0, "ZeroDivisionError"),
        (lambda: exit(3), "SystemExit"),
        (lambda: time.sleep(60), "longer than"),
    ],
    ids=["stack", "killed", "gone", "memory", "error", "exit", "time"],
)
def test_ways_to_die(work, said):
    with pytest.raises(ReaderDied, match=said):
        isolated(work, seconds=1.0 if "longer" in said else 30.0)
