"""The loop around a line."""

from __future__ import annotations

import pytest

from auditor.evidence.source.files import Source
from auditor.evidence.source.loops import loop_around
from auditor.model import Site

TEXT = """\
for i in a:
    for j in b:
        x[i, j]
    y = [z[k]
         for k in c]
    def inner():
        return x
while go:
    x = max(a, key=lambda each: each)
x
"""


@pytest.mark.parametrize(
    ("line", "head"), [(3, 2), (2, 2), (1, 1), (5, 4), (7, None), (9, 8), (10, None)]
)
def test_the_innermost_loop_of_the_same_function(line, head):
    assert loop_around(Source({"t.py": TEXT}), Site("t.py", line)) == head


def test_of_an_unknown_file_nothing_is_known():
    assert loop_around(Source({}), Site("t.py", 1)) is None
