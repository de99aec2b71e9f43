"""Which line stands for calls that nobody needed a graph of."""

import pytest

from auditor.capture.instruments.user_frames import needless


@pytest.mark.parametrize(
    ("paths", "wanted", "lines"),
    [
        ([(1, 5)], [], [5]),
        ([(1, 5)], [(1, 6)], [5]),
        ([(2, 5)], [(1, 5)], [2]),  # the inner line is used well elsewhere
        ([(1, 5, 7), (1, 5, 8)], [], [5]),  # one cause, by two lines
        ([(1, 3), (1, 4)], [(1, 9)], [3, 4]),  # two causes
        ([(2, 5, 7), (2, 5, 8)], [(1, 5, 7)], [2]),
    ],
)
def test_lines_that_stand_for_paths(paths, wanted, lines):
    assert [line for line, *_ in needless(paths, wanted)] == lines
