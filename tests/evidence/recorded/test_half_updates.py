"""Updates that weights in half precision lost."""

from __future__ import annotations

import pytest
from auditor.rules.num.half_updates import HalfUpdates, Updates

from tests.evidence.recorded.rows import loud, quiet

ROW = {"optimizer": "AdamW", "dtype": "bfloat16", "rate": 0.001, "steps": 7, "asked": 40}


def test_only_the_loud_pass_counts_and_a_place_may_be_unknown(seen):
    rows = [
        loud(0, at=0, kept=10, **ROW),
        quiet(0, at=0, kept=9, **ROW),
        loud(0, at=None, kept=0, **ROW),
    ]
    first, second = seen(sites=[5], updates=rows).get(Updates).halves
    assert (first.site.line, second.site) == (5, None)
    assert (first.optimizer, first.dtype, first.rate) == ("AdamW", "bfloat16", 0.001)
    assert (first.steps, first.asked, first.kept, second.kept) == (7, 40, 10, 0)


@pytest.mark.parametrize(
    ("asked", "kept", "share"), [(40, 10, 0.25), (1, 1, 1.0), (1, 0, 0.0), (0, 0, 0.0)]
)
def test_the_share_of_lost_updates(asked, kept, share):
    assert HalfUpdates(None, "SGD", "float16", 0.1, 3, asked, kept).share == share
