"""Kineto prints nothing into a process that is not ours, and its settings stay as they were."""

import os
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from auditor.capture.session import Trace
from auditor.model.devices import DeviceInfo

PROGRAM = """
import ctypes, os, sys, torch, types
from pathlib import Path
from auditor.capture import session
from auditor.capture.session import Trace, _silent_kineto
from auditor.model.devices import DeviceInfo

first = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
with _silent_kineto():
    first.start()
first.stop()
print(os.environ.get("KINETO_LOG_LEVEL"))

level = ctypes.c_int.in_dll(ctypes.CDLL(session._LIBRARY), "FLAGS_caffe2_log_level")
given = level.value
old = torch.randn(100, 100)
if len(sys.argv) > 1:
    trace = Trace(types.SimpleNamespace(device=DeviceInfo("cpu"), step=0), Path(sys.argv[1]))
else:
    trace = torch.profiler.profile(profile_memory=True)
trace.start()
del old
new = torch.ones(3)
trace.stop()
assert level.value == given
"""


@pytest.mark.parametrize("ours", [True, False])
def test_a_profiler_prints_nothing_and_tells_ours_of_no_blocks_that_are_older(ours, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "KINETO_LOG_LEVEL"}
    environment |= {} if ours else {"KINETO_LOG_LEVEL": "3"}
    words = [sys.executable, "-c", PROGRAM, *([str(tmp_path)] if ours else [])]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(None if ours else "3")
    assert ("CPUAllocator" in done.stderr) is not ours
    assert not ours or "USDT" not in done.stderr


def test_torch_tells_all_again_where_the_device_fails(monkeypatch, tmp_path):
    trace = Trace(SimpleNamespace(device=DeviceInfo("cuda"), step=0), tmp_path)
    trace._profile, trace._loud = object(), Mock()
    failing = Mock(side_effect=RuntimeError("device-side assert"))
    monkeypatch.setattr(torch.cuda, "synchronize", failing)
    with pytest.raises(RuntimeError, match="device-side assert"):
        trace.stop()
    trace._loud.assert_called_once()
