"""Calls that stand together and need nothing of one another."""

from __future__ import annotations

import pytest
from auditor.rules.kern.kern008_forwards_in_row import separate_calls

from auditor.evidence.source.files import Source
from auditor.model import Site


def separate(body, lines):
    text = "def loss(x, y, z):\n" + "".join(f"    {line}\n" for line in body)
    return separate_calls(Source({"t.py": text}), [Site("t.py", line) for line in lines])


@pytest.mark.parametrize(
    ("body", "lines", "apart"),
    [
        (["a = net(x)", "b = net(y)", "c = net(z)"], [2, 3, 4], True),
        (["a = f(net(x), 2)", "b = f(net(y), 2)", "c = f(net(z), 2)"], [2, 3, 4], True),
        (["a, b, c = net(x), net(y), net(z)"], [2, 2, 2], True),
        (["a = self.net(x.rows)", "b = self.net(y[0])", "c = self.net(z)"], [2, 3, 4], True),
        (["a = net(x)", "w = y * 2", "b = net(w)", "c = net(z)"], [2, 4, 5], False),
        (["a = net(x)", "print(y)", "b = net(y)", "c = net(z)"], [2, 4, 5], False),
        (["a = net(x)", "b = net(a)", "c = net(z)"], [2, 3, 4], False),
        (["a = net(x)", "b = net(y)", "c = net(z, mask=1)"], [2, 3, 4], False),
        (["a = net(x)", "b = net(f(y))", "c = net(z)"], [2, 3, 4], False),
        (["a = net(x)", "b = net(*y)", "c = net(z)"], [2, 3, 4], False),
        (["a = net(x)", "b = other(y)", "c = net(z)"], [2, 3, 4], False),
        (["a = [net(each) for each in (x, y, z)]"], [2, 2, 2], False),
        (["a = net(x)", "if y:", "    b = net(y)", "c = net(z)"], [2, 4, 5], False),
        (["a = net(x) if x else net(y)", "c = net(z)"], [2, 2, 3], False),
        (["a += net(x)", "a += net(y)", "a += net(z)"], [2, 3, 4], False),
        (["a = net(x)", "b = net(y)"], [2, 2, 3], False),
    ],
)
def test_what_stands_together(body, lines, apart):
    assert separate(body, lines) is apart


def test_lines_of_no_file_or_of_two():
    source = Source({"t.py": "a = net(x)\n", "u.py": "b = net(x)\n"})
    assert not separate_calls(source, [])
    assert not separate_calls(source, [Site("t.py", 1), Site("u.py", 1)])
