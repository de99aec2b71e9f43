"""Rows that a rule reads as their probe wrote them."""

import pytest
from auditor.rules.mem.rows import DifferencesRow

from auditor.evidence.table import Rows
from auditor.recordings.schema.numerics import NormBufferRow
from auditor.rule import NotLooked


def test_rows_that_no_probe_wrote_are_not_looked_at(seen):
    with pytest.raises(NotLooked, match="the recording holds no differences"):
        seen().get(Rows[DifferencesRow])
    assert not list(seen(differences=[]).get(Rows[DifferencesRow])), "it looked, and found none"


def test_rows_that_older_recordings_lack_are_none(seen):
    assert not list(seen().get(Rows[NormBufferRow]))
