"""States loaded before the first step: what was not finite, and rates that came back."""

from __future__ import annotations

import pytest

from auditor.evidence.recorded.load_state_dict import Load, Loads
from auditor.model import Site
from auditor.rule import NotLooked
from tests.evidence.recorded.rows import loud

TEXT = """\
optimizer = AdamW(
    params, weight_decay=0.1)
optimizer = AdamW(params, lr=0.1)
optimizer = AdamW(params, 0.1)
one, two = AdamW(params, lr=0.1), AdamW(params)
other = SGD(params, lr=0.1)
"""
ROW = {"owner": "AdamW", "bad": 0, "tensors": []}


def optimizer(**more):
    return loud(0, **{**ROW, "what": "optimizer", "at": 0, "groups": [], "default": 0.001, **more})


def test_a_recording_that_does_not_tell_is_not_looked_at(seen):
    with pytest.raises(NotLooked, match="holds no loads"):
        seen(steps=[]).get(Loads)
    assert seen(inside="b", loads=[]).get(Loads) == Loads(())


@pytest.mark.parametrize(
    ("line", "default"),
    [(1, 0.001), (2, 0.001), (3, None), (4, None), (5, 0.001), (6, 0.001), (9, 0.001)],
)
def test_the_default_rate_counts_where_the_line_gives_none(seen, line, default):
    table = seen(
        text=TEXT, sites=[1, line] if line != 1 else [1], loads=[optimizer(made_at=int(line != 1))]
    )
    assert table.get(Loads).each[0].default == default


def test_the_last_that_brought_in_what_is_not_finite():
    site = Site("trainer.py", 1)
    each = (
        Load(site, "module", "A", bad=1),
        Load(site, "module", "B", bad=2),
        Load(site, "optimizer", "C", bad=3),
        Load(site, "module", "D"),
    )
    assert (Loads(each).spoiled("module"), Loads(each).spoiled("optimizer")) == (each[1], each[2])
    assert Loads(each[3:]).spoiled("module") is None
