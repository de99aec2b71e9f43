"""Which lines are one statement, and texts cut to fit."""

import pytest

from auditor.evidence.source.files import LONGEST_TEXT, Statements, shorten
from auditor.model import Site

TEXT = """\
x = 1
y = (
    2 +
    3
)
@first
@second
def f(
    a,
):
    if a: b = 1
    while (
        a
    ):
        a -= 1
"""


@pytest.mark.parametrize(
    ("line", "first", "last"),
    [
        (1, 1, 1),
        (3, 2, 5),
        (6, 6, 10),
        (8, 6, 10),
        (11, 11, 11),
        (13, 12, 14),
        (15, 15, 15),
        (99, 99, 99),
    ],
)
def test_lines_of_a_statement(line, first, last):
    known = Statements(lambda _: TEXT.splitlines())
    for _ in range(2):  # the second time it is remembered
        assert known.lines(Site("a.py", line)) == range(first, last + 1)


def test_texts_are_cut_to_sixty_characters():
    assert LONGEST_TEXT == 60
    assert shorten("x" * 60) == "x" * 60
    assert shorten("x" * 61) == "x" * 57 + "..."
    assert shorten("trainer.fit(") == "trainer.fit(...)" and shorten("rows = [") == "rows = [...]"
