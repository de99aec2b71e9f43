"""Rows that a rule reads as their probe wrote them."""

import pytest
from auditor.rules.mem.rows import DifferencesRow
from auditor.rules.num.rows import UpdateRow

from auditor.evidence.table import Rows
from auditor.recordings.schema.graph import FedRow
from auditor.recordings.schema.numerics import NormBufferRow
from auditor.rule import NotLooked
from tests.evidence.recorded.rows import loud

SQUARES = {"kind": "squares", "size": 3, "bytes": 18, "graph": True}
UPDATE = {"optimizer": "SGD", "dtype": "bfloat16", "rate": 0.1, "steps": 7, "asked": 40}


def test_rows_come_as_they_were_written_each_with_its_line(seen):
    made = [loud(8, at=1, **SQUARES), loud(8, at=0, **SQUARES)]
    evidence = seen(sites=[4, 5], differences=made)
    first, second = evidence.get(Rows[DifferencesRow])
    assert (first.site.line, second.site.line) == (5, 4)
    assert (first.kind, first.bytes, len(evidence.get(Rows[DifferencesRow]))) == ("squares", 18, 2)


def test_a_row_without_a_line_has_no_place(seen):
    (row,) = seen(updates=[loud(0, at=None, kept=10, **UPDATE)]).get(Rows[UpdateRow])
    assert (row.site, row.share) == (None, 0.25)


def test_rows_that_no_probe_wrote_are_not_looked_at(seen):
    with pytest.raises(NotLooked, match="the recording holds no differences"):
        seen().get(Rows[DifferencesRow])
    assert not list(seen(differences=[]).get(Rows[DifferencesRow])), "it looked, and found none"


def test_rows_may_say_what_their_absence_means(seen):
    with pytest.raises(NotLooked, match="no optimizer stepped"):
        seen(steps=[]).get(Rows[FedRow])


def test_rows_that_older_recordings_lack_are_none(seen):
    assert not list(seen().get(Rows[NormBufferRow]))
