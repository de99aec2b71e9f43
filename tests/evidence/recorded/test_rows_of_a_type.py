"""Rows that a rule reads as their probe wrote them."""

from auditor.evidence.table import Rows
from auditor.recordings.schema.numerics import NormBufferRow


def test_rows_that_older_recordings_lack_are_none(seen):
    assert not list(seen().get(Rows[NormBufferRow]))
