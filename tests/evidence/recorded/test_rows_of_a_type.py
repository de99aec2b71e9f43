"""Rows that a rule reads as their probe wrote them."""

from auditor.rules.mem.rows import DifferencesRow

from auditor.evidence.table import Rows
from auditor.recordings.schema.numerics import NormBufferRow
from tests.evidence.recorded.rows import loud

SQUARES = {"kind": "squares", "size": 3, "bytes": 18, "graph": True}


def test_rows_come_as_they_were_written_each_with_its_line(seen):
    made = [loud(8, at=1, **SQUARES), loud(8, at=0, **SQUARES)]
    evidence = seen(sites=[4, 5], differences=made)
    first, second = evidence.get(Rows[DifferencesRow])
    assert (first.site.line, second.site.line) == (5, 4)
    assert (first.kind, first.bytes, len(evidence.get(Rows[DifferencesRow]))) == ("squares", 18, 2)


def test_rows_that_older_recordings_lack_are_none(seen):
    assert not list(seen().get(Rows[NormBufferRow]))
