"""How long workers wait for a processor, from what the kernel counts."""

import os
import subprocess
import sys

import pytest

from auditor.capture.probes.data import dataloader
from auditor.capture.probes.data.dataloader import MOST, WorkerQueues


@pytest.fixture
def waits(monkeypatch):
    """Counts in ns by process, in the place of the kernel's."""
    told: dict[int, int] = {}

    class File:
        def __init__(self, path):
            self.pid = int(path.split("/")[2])

        def read_text(self):
            if self.pid not in told:
                raise FileNotFoundError(self.pid)
            return f"5 {told[self.pid]} 1\n"

    monkeypatch.setattr(dataloader, "Path", File)
    return told


def test_the_longest_of_the_workers_since_the_last_time(waits):
    queues = WorkerQueues()
    waits.update({7: 1000, 9: 9000})
    assert queues.longest_us([7, 9]) == 9.0  # from their begin
    waits.update({7: 4000, 9: 10_000})
    assert queues.longest_us([7, 9]) == 3.0
    del waits[7]
    assert queues.longest_us([7, 9]) == 0.0
    assert queues.longest_us([7]) is None
    assert queues.longest_us([]) is None


@pytest.mark.parametrize(("others", "us"), [(MOST - 1, 5.0), (MOST, 0.0)])
def test_so_many_workers_are_asked(waits, others, us):
    waits.update({pid: 0 for pid in range(100, 100 + others)} | {9: 5000})
    assert WorkerQueues().longest_us([*range(100, 100 + others), 9]) == us


@pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"),
    reason="this kernel does not count waits for the processor",
)
def test_a_process_of_the_system():
    queues = WorkerQueues()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        first = queues.longest_us([child.pid])
        again = queues.longest_us([child.pid])
        child.stdin.close()
    assert first is not None and first >= 0.0
    assert again is not None and again >= 0.0
    assert queues.longest_us([child.pid]) is None
