"""What a history would come to under other settings, in words."""

from types import SimpleNamespace

import pytest

from auditor.evidence.snapshot.what_if import AGREES, _agrees


@pytest.mark.parametrize(
    ("replayed", "agrees"), [(105, True), (106, False), (95, True), (94, False)]
)
def test_a_replay_may_miss_by_a_twentieth(replayed, agrees):
    assert AGREES == 0.05
    assert _agrees(replayed, SimpleNamespace(peak_reserved=100)) is agrees
