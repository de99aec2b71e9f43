"""The line that a loader takes its time in, from stacks that were seen inside it."""

import pytest

from auditor.evidence.recorded.batches import LEAST_LATE, LEAST_LATE_US, LEAST_LOOKS, Loading, Seen
from auditor.model import Site
from tests.evidence.recorded.rows import loud


def at(*lines, us=100.0, looks=100, phase="dataset", where="step"):
    names = {2: "fetched", 3: "fetched"}
    sites = tuple(Site("train.py", line, names.get(line, "Data.__getitem__")) for line in lines)
    return Seen(sites, phase, us, looks, where)


def costliest(*seen, share=0.5):
    found = Loading({0: seen}).costliest(0, share)
    return found and (found.site.line, round(found.share, 3), found.function)


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        ((at(6, 2, us=60), at(6, 3, us=20), at(11, us=20)), (2, 0.6, "")),
        ((at(6, 2, us=41), at(6, 3, us=39), at(11, us=20)), (2, 0.8, "fetched")),
        ((at(6, 2, us=30), at(6, 3, us=20), at(11, us=50)), (2, 0.5, "fetched")),
        ((at(6, 2, us=30), at(6, 3, us=19), at(11, us=51)), (11, 0.51, "")),
        ((at(6, us=30), at(11, us=20), at(us=50)), (6, 0.5, "Data.__getitem__")),
        ((at(6, us=30), at(11, us=19), at(us=51)), None),  # most of it is in nobody's lines
        ((at(6, us=34), at(10, us=33), at(11, us=33)), (6, 1.0, "Data.__getitem__")),
        ((), None),
    ],
)
def test_the_costliest_line_of_the_innermost_function_with_enough_of_the_time(seen, line):
    assert costliest(*seen) == line


def test_too_few_looks_say_nothing():
    assert costliest(at(6, looks=LEAST_LOOKS)) == (6, 1.0, "")
    assert costliest(at(6, looks=LEAST_LOOKS - 1)) is None


def test_fewer_looks_do_where_each_stands_for_long():
    """C code that keeps the interpreter to itself is seen once, when it returns."""
    assert costliest(at(6, us=LEAST_LATE_US, looks=LEAST_LATE)) == (6, 1.0, "")
    assert costliest(at(6, us=LEAST_LATE_US - 1, looks=LEAST_LATE)) is None
    assert costliest(at(6, us=LEAST_LATE_US, looks=LEAST_LATE - 1)) is None


def test_rows_of_the_diagnostic_pass(seen):
    rows = [
        loud(3, loader=1, where="worker", phase="dataset", stack=[0, 1], us=9.0, n=20),
        loud(3, loader=1, where="step", phase="other", stack=[], us=1.0, n=1),
    ]
    table = seen(sites=[6, 2], steps=[], loading=rows).get(Loading)
    worker, waiting = table.seen[1]
    assert [site.line for site in worker.at] == [6, 2] and waiting.at == ()
    assert (worker.us, worker.looks, worker.where, worker.phase) == (9.0, 20, "worker", "dataset")
    assert table.costliest(1, 0.5).site.line == 2


@pytest.mark.parametrize(
    ("drawn", "looks", "shares"),
    [(30.0, LEAST_LOOKS, (0.3, 0.7)), (0.0, LEAST_LOOKS, (0.0, 1.0)), (30.0, 5, (0.0, 0.0))],
)
def test_the_share_of_a_phase(drawn, looks, shares):
    seen = at(us=drawn, looks=looks, phase="sampler"), at(6, us=100.0 - drawn, looks=0)
    table = Loading({0: seen})
    assert tuple(table.phase_share(0, phase) for phase in ("sampler", "dataset")) == shares
    assert table.phase_share(1, "dataset") == 0.0
