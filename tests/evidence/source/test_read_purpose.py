"""What a read is for, by the instruction, the expression, or the line alone."""

import pytest

from auditor.evidence.recorded.reads import (
    Expression,
    act_of,
)
from auditor.evidence.source.files import Source, Span
from auditor.model import Site


def act(text, kind="item", *, opcode="CALL", via="", spanned=True):
    span = Span(1, 1, 0, len(text)) if spanned else None
    return act_of(
        kind, Expression(opcode, via, span, text), Site("a.py", 1), Source({"a.py": text})
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bool(x)", "branch"),
        ("max(x, y)", "branch"),
        ("x.max(y)", "scalar"),
        ("float(x)", "scalar"),
        ("x.item()", "scalar"),
        ("x > y", "scalar"),
    ],
)
def test_calls_that_ask_for_truth(text, expected):
    assert act(text) == expected


@pytest.mark.parametrize(
    ("text", "opcode", "expected"),
    [
        ("if x: pass", "", "branch"),
        ("if x: pass", "CALL", "branch"),
        ("if x: pass", "LOAD_FAST", "scalar"),
        ("if x.item(): pass", "", "scalar"),
        ("y = any(x)", "", "branch"),
        ("y = float(any(x))", "", "scalar"),
        ("y = f(x)", "", "scalar"),
        ("y = f(x)", "TO_BOOL", "branch"),
    ],
)
def test_the_line_alone(text, opcode, expected):
    assert act(text, opcode=opcode, spanned=False) == expected
