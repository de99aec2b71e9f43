"""Memory that is free between tensors is given back; what is in use stays."""

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from auditor.capture.probes import base
from auditor.capture.probes.base import FreedMemory

MIB = 1 << 20

pytestmark = pytest.mark.skipif(base._trimmer() is None, reason="this C library gives nothing back")


def resident() -> int:
    return FreedMemory().resident()


def scattered(kept: list[object], n: int = 60) -> None:
    """Tensors of 4 MiB that are gone, each with something small of ours in its place."""
    held = [torch.ones(MIB) for _ in range(4)]
    for turn in range(n):
        held[turn % 4] = torch.ones(MIB + turn * 64)
        kept.append(StorageWeakRef(held[turn % 4].untyped_storage()))


def test_what_instruments_left_free_goes_back(monkeypatch):
    monkeypatch.setattr(base, "_peak", lambda: resident())
    monkeypatch.setattr(base, "MORE", 0)
    monkeypatch.setattr(base, "SHARE", 1.0)
    freed, kept = FreedMemory(), []
    freed.begin("numbers")
    before = resident()
    for _ in range(4):
        scattered(kept)
        freed.look()
        assert resident() < before + 48 * MIB
    freed.close()


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
