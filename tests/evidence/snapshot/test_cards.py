"""What a history would come to on other cards and under other settings, in words."""

import pickle
from types import SimpleNamespace

import pytest

from auditor.allocator import CachingAllocator
from auditor.evidence.snapshot.history import Allocations
from auditor.evidence.snapshot.what_if import (
    AGREES,
    CARDS,
    CONTEXT,
    GIB,
    MIB,
    Outcome,
    _agrees,
    _said,
    on_cards,
)
from auditor.evidence.table import Evidence
from auditor.recordings.standalone import SnapshotRecording


@pytest.fixture
def recorded(tmp_path):
    """Evidence of an allocator that held blocks of these sizes at once."""

    def made(*sizes):
        allocator = CachingAllocator(1 << 50)
        for size in sizes:
            allocator.malloc(size, frames=({"filename": "/a/t.py", "line": 1, "name": "f"},))
        (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(allocator.snapshot()))
        return Evidence(SnapshotRecording(tmp_path / "snapshot.pickle"))

    return made


@pytest.mark.parametrize(
    ("size", "rows"),
    [
        (24 * GIB - CONTEXT, [(20, "would run out of memory"), (24, "fits")]),
        (24 * GIB - CONTEXT + 2 * MIB, [(24, "would run out of memory"), (32, "fits")]),
        (2 * MIB, [(4, "fits")]),
        (200 * GIB, [(180, "would run out of memory")]),
    ],
)
def test_the_cards_around_what_it_needs(recorded, size, rows):
    evidence = recorded(size)
    (course,) = evidence.get(Allocations).devices
    assert list(CARDS) == sorted(CARDS) and CONTEXT == 450 * MIB
    assert on_cards(evidence, course) == tuple((f"on a card of {n} GiB", said) for n, said in rows)


@pytest.mark.parametrize(
    ("retries", "ooms", "said"),
    [
        (0, 0, "fits"),
        (1, 0, "fits with 1 retry"),
        (3, 0, "fits with 3 retries"),
        (2, 1, "would run"),
    ],
)
def test_an_outcome_in_words(retries, ooms, said):
    outcome = Outcome("", 3 * MIB, 2 * MIB, retries, ooms)
    assert _said(outcome).startswith(said)
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
