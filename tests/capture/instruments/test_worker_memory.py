"""Which samples come again, and a cache that none of them hits."""

import pytest

from auditor.capture.instruments.worker_memory import ContainerPlace, FetchedBefore, _Watched


@pytest.mark.parametrize(
    ("batches", "again"),
    [
        ([[0, 1], [2, 3], [1, 2]], [0, 0, 2]),
        ([[0, 1], [1, 4], [4, 0]], [0, 0, 2]),
        ([(0, 1), 0, 5], [0, 1, 0]),
        ([[None, None]] * 3, [0, 0, 0]),  # an iterable dataset is asked for no number
        ([None] * 3, [0, 0, 0]),
        ([[[0]], [[0]]], [0, 0]),
    ],
)
def test_samples_that_were_fetched_before(batches, again):
    before = FetchedBefore()
    assert [before.again(batch) for batch in batches] == again


@pytest.mark.parametrize(
    ("fetched", "stored", "misses"),
    [(24, 24, True), (23, 23, False), (40, 38, True), (40, 37, False), (40, 41, False)],
)
def test_a_cache_that_nearly_no_sample_hits(fetched, stored, misses):
    watched = _Watched(ContainerPlace(object, "module", "Rows", "known"), first=10)
    watched.add(60, 8, again=0)  # samples that were new
    watched.add(60 + stored, 8, again=fetched)
    assert watched.misses is misses
    assert (watched.fetched, watched.stored, watched.bytes) == (fetched, stored, 8 * (50 + stored))
