"""Buffers that rank 0 sends."""

from __future__ import annotations

import pytest
from auditor.rules.dist.buffer_broadcasts import BufferBroadcasts

from auditor.rule import NotLooked
from tests.evidence.recorded.rows import loud, steps


def test_rows_are_modules(seen):
    rows = [
        loud(5, number=number, at=at, what="Net", ranks=2, n=n, bytes=64, buffers=2, changed=number)
        for number, at, n in ((1, None, 2), (0, 0, 6))
    ]
    first, second = (
        seen(sites=[3], steps=steps(4), buffer_broadcasts=rows).get(BufferBroadcasts).each
    )
    assert (first.made_at.line, first.per_step, first.nbytes, first.buffers) == (3, 1.5, 64, 2)
    assert (first.changed, first.keyword, first.steps) == (0, "broadcast_buffers", 4)
    assert (second.made_at, second.changed, second.per_step) == (None, 1, 0.5)


def test_a_program_without_such_a_module_is_not_called_clean(seen):
    with pytest.raises(NotLooked, match="DistributedDataParallel"):
        seen(steps=[], buffer_broadcasts=[]).get(BufferBroadcasts)
