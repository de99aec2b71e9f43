"""Backward calls with nothing between them that reads a gradient or changes a parameter."""

from __future__ import annotations

import textwrap

import pytest
from auditor.rules.graph.backward_rewalks import one_after_the_other

from auditor.evidence.source.files import Source
from auditor.model import Site


def joined(text, *lines):
    source = Source({"t.py": textwrap.dedent(text)})
    return one_after_the_other(source, [Site("t.py", line, "step", "") for line in lines])


@pytest.mark.parametrize(
    ("between", "nothing"),
    [
        ("pass", True),
        ("total = a.item() + b.detach()", True),
        ("total += a.mean().item()", True),
        ("total: float = a.sum()", True),
        ("for x in zip(xs, range(3)): losses.append(x)", True),
        ("for x in xs: model(x)", False),
        ("optimizer.step()", False),
        ("norm = w.grad", False),
        ("if a: pass", False),
        ("while a: pass", False),
        ("return", False),
        ("a.gradient = 1", True),
    ],
)
def test_what_stands_between_two(between, nothing):
    assert joined(f"a.backward()\n{between}\nb.backward()\n", 1, 3) is nothing
    assert joined(f"{between}\na.backward()\nb.backward()\n{between}\n", 2, 3)


def test_statements_of_several_lines_lie_between_with_any_of_them():
    text = "(a\n .backward())\n(b\n .backward())\n"
    for first in (1, 2):
        for last in (3, 4):
            assert joined(text, first, last)
    assert not joined(text, 1, 2)  # both in one statement
    assert not joined(text, 1, 5)
    assert not joined("if x:\n    a.backward()\nb.backward()\n", 2, 3)


def test_one_line_needs_a_loop_around_it():
    assert not joined("a.backward()\n", 1)
    assert joined("for a in losses:\n    a.backward()\n", 2)
    assert joined("while x:\n    a.backward()\n", 2)
    assert not joined("for a in losses:\n    a.backward()\n    optimizer.step()\n", 2)
    assert not joined("for a in losses:\n    model(a)\n    a.backward()\n", 2)
    assert not joined("for a in losses:\n    pass\nb.backward()\n", 3)
    assert not joined("if x:\n    a.backward()\n", 2)


@pytest.mark.parametrize(
    "text",
    [
        "if x:\n    pass\nelse:\n    a.backward()\n    b.backward()\n",
        "try:\n    pass\nfinally:\n    a.backward()\n    b.backward()\n",
    ],
)
def test_all_blocks_of_a_statement_are_looked_at(text):
    assert joined(text, 4, 5)


def test_lines_of_several_files_or_none():
    source = Source({"t.py": "a.backward()\nb.backward()\n", "u.py": "a.backward()\n"})
    sites = [Site("t.py", 1, "", ""), Site("u.py", 1, "", "")]
    assert not one_after_the_other(source, sites)
    assert not one_after_the_other(source, [])
    assert one_after_the_other(source, [sites[0], Site("t.py", 2, "", "")])
