"""The line that a loader takes its time in, from stacks that were seen inside it."""

import pytest

from auditor.evidence.recorded.batches import LEAST_LATE, LEAST_LATE_US, LEAST_LOOKS, Loading, Seen
from auditor.evidence.source.files import Source
from auditor.model import Site
from tests.evidence.recorded.rows import loud

TEXT = """\
def fetched(i):
    data = opened(i)
    return decoded(data)
class Data:
    def __getitem__(self, i):
        x = fetched(i)
        for row in x:
            for value in row:
                a(value)
                b(value)
        return x
"""


def at(*lines, us=100.0, looks=100, phase="dataset", where="step", via=""):
    names = {2: "fetched", 3: "fetched"}
    sites = tuple(Site("train.py", line, names.get(line, "Data.__getitem__")) for line in lines)
    return Seen(sites, phase, us, looks, where, via)


def costliest(*seen, share=0.5):
    found = Loading(Source({"train.py": TEXT}), {0: seen}).costliest(0, share)
    return found and (found.site.line, round(found.share, 3))


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        ((at(6, 2, us=60), at(6, 3, us=20), at(11, us=20)), (2, 0.6)),
        ((at(6, 2, us=41), at(6, 3, us=39), at(11, us=20)), (6, 0.8)),
        ((at(6, 2, us=40), at(6, 3, us=20), at(11, us=40)), (2, 0.4)),  # two thirds of line 6
        ((at(6, 2, us=39), at(6, 3, us=21), at(11, us=40)), (6, 0.6)),
        ((at(9, us=35), at(10, us=35), at(11, us=30)), (8, 0.7)),
        ((at(7, us=35), at(10, us=35), at(11, us=30)), (7, 0.7)),
        ((at(9, us=25), at(10, us=25), at(11, us=26), at(6, us=24)), (8, 0.5)),
        ((at(9, us=25), at(10, us=24), at(11, us=26), at(6, us=25)), (11, 1.0)),
        ((at(6, us=30), at(11, us=20), at(us=50)), (6, 0.5)),
        ((at(6, us=30), at(11, us=19), at(us=51)), None),
        ((at(6, us=34), at(10, us=33), at(11, us=33)), (6, 1.0)),
        ((at(6, us=40), at(us=60)), None),  # most of it is in nobody's lines
        ((), None),
    ],
    ids=[
        "a line of a helper",
        "two lines of a helper, so its call",
        "most of a call that alone is enough",
        "less of it",
        "two lines of an inner loop",
        "lines of the outer loop",
        "a loop with just enough",
        "a loop with less",
        "a function with just enough",
        "a function with less",
        "spread over its function",
        "of a library",
        "nothing seen",
    ],
)
def test_the_innermost_line_with_enough_of_the_time(seen, line):
    assert costliest(*seen) == line


def test_a_loop_around_the_function_is_not_meant():
    text = "for each in data:\n    def fetched(i):\n        return opened(i)\n"
    seen = Seen((Site("train.py", 3, "fetched"),), "dataset", 10.0, 100)
    assert Loading(Source({"train.py": text}), {0: (seen,)}).costliest(0, 0.5).loops == ()


def test_the_costliest_lines_of_a_function():
    def found(*seen):
        return Loading(Source({"train.py": TEXT}), {0: seen}).costliest(0, 0.5)

    one = found(at(6, us=45), at(10, us=20), at(11, us=35))
    assert (one.function, one.site.line, [each.line for each in one.inside]) == (
        "Data.__getitem__",
        6,
        [10, 11],
    )
    assert [each.line for each in found(at(6, us=46), at(10, us=19), at(11, us=35)).inside] == [11]
    assert found(at(6, us=49), at(us=51)) is None  # most of it is in nobody's lines


def test_too_few_looks_say_nothing():
    assert costliest(at(6, looks=LEAST_LOOKS)) == (6, 1.0)
    assert costliest(at(6, looks=LEAST_LOOKS - 1)) is None


def test_fewer_looks_do_where_each_stands_for_long():
    """C code that keeps the interpreter to itself is seen once, when it returns."""
    assert costliest(at(6, us=LEAST_LATE_US, looks=LEAST_LATE)) == (6, 1.0)
    assert costliest(at(6, us=LEAST_LATE_US - 1, looks=LEAST_LATE)) is None
    assert costliest(at(6, us=LEAST_LATE_US, looks=LEAST_LATE - 1)) is None


def test_workers_count_where_there_are_any_unless_indices_are_dear():
    worker = at(6, us=50, where="worker")
    waits, draws = at(us=60, phase="other"), at(11, us=40, phase="sampler")
    assert costliest(worker, waits, draws) == (6, 1.0)
    assert costliest(worker, waits, at(11, us=60, phase="sampler")) == (11, 0.5)
    table = Loading(Source({}), {0: (waits, draws)})
    assert table.phase_share(0, "sampler") == 0.4 and table.phase_share(1, "sampler") == 0.0


def test_what_it_calls_of_a_library_is_said_where_that_takes_the_time():
    def via(*seen):
        return Loading(Source({}), {0: seen}).costliest(0, 0.5).via

    assert via(at(6, us=60, via="json:load"), at(6, us=40)) == "json:load"
    assert via(at(6, us=40, via="json:load"), at(6, us=60)) == ""


def test_rows_of_the_diagnostic_pass(seen):
    rows = [
        loud(3, loader=1, where="worker", phase="dataset", stack=[0, 1], us=9.0, n=20, via="a:b"),
        loud(3, loader=1, where="step", phase="other", stack=[], us=1.0, n=1),
    ]
    table = seen(text=TEXT, sites=[6, 2], steps=[], loading=rows).get(Loading)
    worker, waiting = table.seen[1]
    assert [site.line for site in worker.at] == [6, 2] and waiting.at == ()
    assert (worker.us, worker.looks, worker.where, worker.phase) == (9.0, 20, "worker", "dataset")
    assert worker.via == "a:b" and table.costliest(1, 0.5).site.line == 2


def test_a_recording_from_before_there_were_stacks(seen):
    assert seen(text=TEXT, steps=[]).get(Loading).seen == {}
