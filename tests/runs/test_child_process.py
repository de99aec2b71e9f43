"""The parent's side of a recording child."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest

from auditor.runs import child_process
from auditor.runs.progress import Pace, silent

STUCK = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGUSR1, lambda *_: print("asked", flush=True))
print("ready", flush=True)
while True:
    time.sleep(60)
"""


@pytest.mark.parametrize("asked_before", [True, False])
def test_a_process_that_does_not_end_is_asked_once_where_it_is(monkeypatch, asked_before):
    monkeypatch.setattr(child_process, "GRACE_S", 0.1)
    child: Any = object.__new__(child_process.Child)
    child._asked, child._pace = False, Pace(silent)
    with subprocess.Popen(
        [sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True
    ) as stuck:
        assert stuck.stdout is not None and stuck.stdout.readline() == "ready\n"
        child.process = stuck
        if asked_before:
            child.ask_for_stacks()
        child.end(signal.SIGINT)
        assert stuck.stdout.read() == "asked\n"
