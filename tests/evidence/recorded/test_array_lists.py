"""What tensors made of lists of arrays cost the step, or a worker."""

from __future__ import annotations

import pytest
from auditor.rules.data.array_lists import ArrayLists

from tests.evidence.recorded.rows import loud, steps


def table(seen, **row):
    given = {"at": 0, "where": "step", "n": 20, "us": 2000.0, "arrays": 80, "numbers": 800}
    row = loud(9, **{**given, "fetch_us": 0.0, **row})
    return seen(sites=[5], steps=[*steps(10, "quiet"), *steps(10)], listed=[row]).get(ArrayLists)


def test_in_the_step_the_share_is_that_of_the_step(seen):
    (each,) = table(seen).lines
    assert (each.us, each.share, each.arrays, each.numbers) == (200.0, 0.2, 4, 40)
    assert (each.calls, each.steps, each.in_worker) == (20, 10, False)


def test_in_a_worker_the_share_is_that_of_its_batches(seen):
    (each,) = table(seen, where="worker", loader=0, fetch_us=8000.0).lines
    assert (each.us, each.share, each.in_worker) == (100.0, 0.25, True)


@pytest.mark.parametrize(
    ("share", "least_us", "found"), [(0.2, 200.0, 1), (0.21, 200.0, 0), (0.2, 201.0, 0)]
)
def test_what_is_worth_telling(seen, share, least_us, found):
    assert len(list(table(seen).worth(share, least_us))) == found
