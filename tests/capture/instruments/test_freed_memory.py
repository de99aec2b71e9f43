"""Memory that is free between tensors is given back; what is in use stays."""

import subprocess
import sys

import pytest

from auditor.capture.probes import base
from auditor.capture.probes.base import FreedMemory

pytestmark = pytest.mark.skipif(base._trimmer() is None, reason="this C library gives nothing back")


SCATTERED = """
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from auditor.capture.probes import base

MIB = 1 << 20
freed, kept = base.FreedMemory(), []
base._peak, base.MORE, base.SHARE = freed.resident, 0, 1.0
held = [torch.ones(MIB) for _ in range(4)]
freed.begin("numbers")
before = freed.resident()
for _ in range(4):
    for turn in range(60):  # tensors of 4 MiB that are gone, each with something small in its place
        held[turn % 4] = torch.ones(MIB + turn * 64)
        kept.append(StorageWeakRef(held[turn % 4].untyped_storage()))
    freed.look()
    print(freed.resident() - before)
"""


def test_what_instruments_left_free_goes_back():
    """In a process of its own: what other tests left free would be used first, or given back."""
    words = [sys.executable, "-c", SCATTERED]
    more = subprocess.run(words, capture_output=True, check=True, text=True).stdout.split()
    assert len(more) == 4
    assert all(int(each) < 48 << 20 for each in more)


@pytest.mark.parametrize(("passes", "asked"), [(["warmup", "quiet"], 0), (["quiet", "numbers"], 1)])
def test_passes_that_are_timed_as_they_are_keep_theirs(monkeypatch, passes, asked):
    asked_for = []
    monkeypatch.setattr(base, "_trimmer", lambda: asked_for.append)
    monkeypatch.setattr(base, "_peak", lambda: 0)
    monkeypatch.setattr(base, "MORE", 1)
    freed = FreedMemory()
    for each in passes:
        freed.begin(each)
        freed.look()
    assert len(asked_for) == asked
    freed.look()
    assert len(asked_for) == asked, "what stayed is in use: it is not asked for again"
    freed.close()
