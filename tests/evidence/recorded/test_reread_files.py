"""What whole files that are read again cost the step, or a worker."""

from __future__ import annotations

from auditor.rules.data.reread_files import RereadFiles

from tests.evidence.recorded.rows import loud, steps


def table(seen, **row):
    given = {"at": 0, "where": "step", "name": "numpy.load", "n": 40, "again": 30, "us": 2000.0}
    given |= {"batches": 10, "bytes": 512, "path": "/data/a.npy", "fetch_us": 0.0}
    row = loud(9, **{**given, **row})
    return seen(sites=[5], steps=[*steps(10, "quiet"), *steps(10)], reread=[row]).get(RereadFiles)


def test_in_the_step_the_share_is_that_of_the_step(seen):
    (each,) = table(seen).lines
    assert (each.us, each.share, each.reads, each.again) == (200.0, 0.2, 4, 0.75)
    assert (each.name, each.path, each.size) == ("numpy.load", "/data/a.npy", 512)
    assert (each.site.line, each.steps, each.in_worker) == (5, 10, False)


def test_in_a_worker_the_share_is_that_of_its_batches(seen):
    (each,) = table(seen, where="worker", loader=0, fetch_us=8000.0, batches=4).lines
    assert (each.us, each.share, each.reads, each.in_worker) == (500.0, 0.25, 10, True)


def test_a_row_without_batches_tells_nothing(seen):
    assert table(seen, batches=0, n=0).lines == ()
