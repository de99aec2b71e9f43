"""Samples that batch norms see."""

from __future__ import annotations

import pytest
from auditor.rules.dist.norm_batches import NormBatches

from auditor.rule import NotLooked
from tests.evidence.recorded.rows import loud


def test_rows_are_modules(seen):
    facts = {"what": "Net", "norm": "BatchNorm2d", "norms": 3, "ranks": 2, "n": 5}
    rows = [loud(0, at=0, norm_at=1, samples=2, values=8, **facts), loud(0, at=None, **facts)]
    first, second = seen(sites=[3, 5], norm_batches=rows).get(NormBatches).each
    assert (first.made_at.line, first.ran_at.line, first.samples, first.values) == (3, 5, 2, 8)
    assert (second.made_at, second.ran_at, second.norms, second.forwards) == (None, None, 3, 5)


def test_a_program_without_them_is_not_called_clean(seen):
    with pytest.raises(NotLooked, match="batch norm"):
        seen(norm_batches=[]).get(NormBatches)
