"""How long workers wait for a processor, from what the kernel counts."""

import os
import subprocess
import sys

import pytest

from auditor.capture.probes.data import dataloader as worker_queues
from auditor.capture.probes.data.dataloader import MOST, WorkerQueues


class Kernel:
    """Counts in ns by process and thread; a file of a thread that ended has no words."""

    def __init__(self, monkeypatch):
        self.waits: dict[int, dict[str, int]] = {}
        self.open: list[str] = []
        kernel = self

        class File:
            def __init__(self, path):
                self.path = path
                kernel.open.append(path)

            def words(self):
                _, _, pid, _, thread, _ = self.path.split("/")
                ns = kernel.waits.get(int(pid), {}).get(thread)
                return [] if ns is None else [b"5", str(ns).encode(), b"1"]

            def close(self):
                kernel.open.remove(self.path)

        monkeypatch.setattr(worker_queues, "KeptOpen", File)
        monkeypatch.setattr(worker_queues.os, "listdir", self.threads)

    def threads(self, path):
        pid = int(path.split("/")[2])
        if pid not in self.waits:
            raise FileNotFoundError(path)
        return list(self.waits[pid])


def test_the_longest_of_the_workers_since_the_last_time(monkeypatch):
    kernel, queues = Kernel(monkeypatch), WorkerQueues()
    kernel.waits = {7: {"7": 1000, "8": 500}, 9: {"9": 9000}}
    assert queues.longest_us([7, 9]) == 9.0  # from their begin
    kernel.waits = {7: {"7": 4000, "8": 2500}, 9: {"9": 10_000}}
    assert queues.longest_us([7, 9]) == 3.0  # of one, the thread that waited longest
    kernel.waits = {7: {"7": 4000, "12": 250}, 9: {"9": 10_000}}
    assert queues.longest_us([7, 9]) == 0.25  # one thread ended, another began
    assert len(kernel.open) == 3
    del kernel.waits[7]
    assert queues.longest_us([7, 9]) == 0.0
    assert kernel.open == ["/proc/9/task/9/schedstat"]
    queues.close()
    assert kernel.open == []


@pytest.mark.parametrize(("others", "us"), [(MOST - 1, 5.0), (MOST, 0.0)])
def test_so_many_workers_are_asked(monkeypatch, others, us):
    kernel = Kernel(monkeypatch)
    kernel.waits = {pid: {str(pid): 0} for pid in range(100, 100 + others)} | {9: {"9": 5000}}
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
    queues.close()
