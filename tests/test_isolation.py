"""A reader in a process of its own: results, errors, and every way to die."""

import os
import signal
import time
from pathlib import Path

import pytest

from auditor.evidence.scans import ElementCounts
from auditor.extensions.checkpoints.reading import NotACheckpoint
from auditor.isolation import ReaderDied, isolated


def test_results_and_errors_come_through():
    assert isolated(lambda: (ElementCounts(3, low=1.0), {"a": [1]}), (ElementCounts,)) == (
        ElementCounts(3, low=1.0),
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
        isolated(lambda: ElementCounts(3))


def busy():
    while True:
        pass


def deep():
    """A key of 300,000 nested tuples."""
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
        (busy, "longer than"),
    ],
    ids=["stack", "killed", "gone", "memory", "error", "exit", "time", "busy"],
)
def test_ways_to_die(work, said):
    with pytest.raises(ReaderDied, match=said):
        isolated(work, seconds=1.0 if work is not busy and "longer" in said else 30.0, cpu=1.0)


def test_a_reader_writes_no_file_and_gains_no_privilege(tmp_path):
    def write():
        (tmp_path / "x").write_bytes(b"x")

    with pytest.raises(ReaderDied, match="OSError"):
        isolated(write)
    assert "NoNewPrivs:\t1\n" in isolated(Path("/proc/self/status").read_text)
    assert "NoNewPrivs:\t0\n" in Path("/proc/self/status").read_text()


def test_a_child_without_a_limit_forks_those_that_have_one(tmp_path):
    def both():
        (tmp_path / "x").write_bytes(b"x")
        return isolated(Path("/proc/self/limits").read_text)

    said = isolated(both, memory=None)
    assert (tmp_path / "x").exists() and "Max file size             0                    0" in said
