"""Sums of losses: of how many, on how many steps, and what they hold together."""

from __future__ import annotations

import pytest
from auditor.rules.graph.summed_losses import LossSums

from tests.evidence.recorded.rows import loud

MIB = 1 << 20


def row(step, saved=4 * MIB, each=MIB, leaves=3 * MIB):
    return loud(step, at=0, n=4, saved_bytes=saved, each_bytes=each, leaf_bytes=leaves)


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([row(0)], 0),
        ([row(0), row(0)], 0),
        ([row(0), row(1)], 1),
        ([row(0), row(1, each=MIB - 1)], 1),
        ([row(0), row(1, saved=4 * MIB - 2, each=MIB - 1)], 0),
        ([row(0, leaves=3 * MIB + 1), row(1, leaves=3 * MIB + 1)], 0),
    ],
)
def test_steps_and_bytes(seen, rows, found):
    sums = list(seen(sites=[7], summed=rows).get(LossSums).heavy(2, MIB, 1.0))
    assert [(each.site.line, each.parts, each.lost_bytes) for each in sums] == [
        (7, 4, 3 * MIB)
    ] * found
