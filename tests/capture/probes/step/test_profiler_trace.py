"""Kineto prints nothing into a process that is not ours, and its settings stay as they were."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, torch
from auditor.capture.probes.step.profiler_trace import _silent_kineto
profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
with _silent_kineto():
    profiler.start()
profiler.stop()
print(os.environ.get("KINETO_LOG_LEVEL"))
"""


@pytest.mark.parametrize("given", [None, "3"])
def test_the_first_profiler_of_a_process_prints_nothing(given):
    environment = {k: v for k, v in os.environ.items() if k != "KINETO_LOG_LEVEL"}
    environment |= {"KINETO_LOG_LEVEL": given} if given else {}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(given)
    if given is None:
        assert "USDT" not in done.stderr
