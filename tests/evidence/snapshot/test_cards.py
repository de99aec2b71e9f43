"""What a history would come to under other settings, in words."""

from types import SimpleNamespace

import pytest

from auditor.evidence.snapshot.what_if import AGREES, Outcome, _agrees

MIB = 1 << 20


@pytest.mark.parametrize(("retries", "ooms"), [(0, 0), (1, 0), (2, 1)])
def test_an_outcome_in_words(retries, ooms):
    outcome = Outcome("", 3 * MIB, 2 * MIB, retries, ooms)
    ended = "out of memory" if ooms else "fits"
    assert outcome.row[0] == "with the settings recorded"
    assert outcome.row[1].startswith("3 MiB reserved at most, ") and outcome.row[1].endswith(ended)
    assert Outcome("x:1", 0, 0, 0, 0).row == ("with x:1", "0 B reserved at most, 0 retries, fits")


@pytest.mark.parametrize(
    ("replayed", "agrees"), [(105, True), (106, False), (95, True), (94, False)]
)
def test_a_replay_may_miss_by_a_twentieth(replayed, agrees):
    assert AGREES == 0.05
    assert _agrees(replayed, SimpleNamespace(peak_reserved=100)) is agrees
