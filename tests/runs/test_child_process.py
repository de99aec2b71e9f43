"""The parent's side of a recording child."""

import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from auditor.runs import child_process
from auditor.runs.plan import Plan
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
    sleep = time.sleep  # a busy machine answers late
    monkeypatch.setattr(child_process.time, "sleep", lambda seconds: sleep(10 * seconds))
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


class Shown:
    """Progress that remembers which runs there were."""

    def __init__(self):
        self.stages: list[str] = []

    def __call__(self, name, done, steps): ...

    def outline(self, passes): ...

    def stage(self, name):
        self.stages.append(name)


@pytest.mark.parametrize(("exhausted", "stages"), [(True, ["again"]), (False, [])])
def test_a_target_that_ends_early_begins_a_stage(monkeypatch, tmp_path, exhausted, stages):
    ended = SimpleNamespace(folder=tmp_path, manifest={"exhausted": exhausted})
    monkeypatch.setattr(child_process, "record_once", lambda *_: ended)
    monkeypatch.setattr(child_process, "record_apart", lambda *_: ended)
    monkeypatch.setattr(child_process, "counted", lambda _: {"quiet": 16})
    monkeypatch.setattr(child_process, "add_warning", lambda *_: None)
    plan = Plan("train.py", (), 50, 5, "auto", str(tmp_path), ())
    shown = Shown()
    child_process.record(plan, None, shown, print)
    assert shown.stages == stages
