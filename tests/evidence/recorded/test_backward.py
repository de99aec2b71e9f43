"""Backward calls that kept their graph, and which of them nobody walked again."""

from auditor.rules.graph.kept import Backward

from tests.evidence.recorded.rows import loud, steps


def call(step, at=0, n=1, *, retain=True, create=False, held=None):
    more = {} if held is None else {"held_bytes": held}
    return loud(step, at=at, n=n, retain=retain, create=create, **more)


def table(seen, rows, reused=()):
    kept = [loud(0, at=at, by=None, n=1) for at in reused]
    return seen(sites=[9, 4, 6], steps=steps(3), backward=rows, reused=kept).get(Backward)


def test_lines_that_kept_graphs_for_nothing(seen):
    rows = [
        call(1, n=2, held=50),
        call(0, n=1, held=70),
        call(2, n=5, retain=False, held=900),
        call(4, n=90),  # did not complete
        call(0, at=1),
        call(1, at=1, retain=False, create=True),
        call(0, at=2, n=7),
    ]
    found = table(seen, rows)
    six, nine = found.never_reused()
    assert (six.site.line, six.n) == (6, 7)
    assert (nine.site.line, nine.n, nine.pattern.seen) == (9, 3, (0, 1))


def test_a_line_whose_graph_was_walked_again_is_left_out(seen):
    found = table(seen, [call(0), call(0, at=1)], reused=[0])
    assert {line for _, line in found.reused} == {9}
    assert [each.site.line for each in found.never_reused()] == [4]
