"""States loaded before the first step: what was not finite, and rates that came back."""

import pytest

from auditor.evidence.recorded.load_state_dict import default_rate
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.recordings.schema.data import LoadRow
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


@pytest.mark.parametrize(
    ("line", "default"),
    [(1, 0.001), (2, 0.001), (3, None), (4, None), (5, 0.001), (6, 0.001), (9, 0.001)],
)
def test_the_default_rate_counts_where_the_line_gives_none(seen, line, default):
    sites = [1, line] if line != 1 else [1]
    evidence = seen(text=TEXT, sites=sites, loads=[optimizer(made_at=int(line != 1))])
    (load,) = evidence.get(Rows[LoadRow])
    assert default_rate(load, evidence.get(Source)) == default
