"""What a read is for, by the instruction, the expression, or the line alone."""

import pytest

from auditor.evidence.recorded.reads import (
    GLUE,
    SHAPES,
    TRANSFERS,
    Expression,
    act_of,
    framework_of,
    library_of,
)
from auditor.evidence.source.files import Source, Span
from auditor.model import Site


def act(text, kind="item", *, opcode="CALL", via="", spanned=True):
    span = Span(1, 1, 0, len(text)) if spanned else None
    return act_of(
        kind, Expression(opcode, via, span, text), Site("a.py", 1), Source({"a.py": text})
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        *((kind, "transfer") for kind in sorted(TRANSFERS)),
        *((kind, "shape") for kind in sorted(SHAPES)),
    ],
)
def test_kinds_that_decide(kind, expected):
    assert act("bool(x)", kind) == expected


def test_kinds_that_read_a_number():
    assert act("bool(x)", "equal") == "scalar"
    assert act("bool(x)", via="lib.py:f") == "scalar"
    assert act("bool(x)", via="torch/_tensor.py:__bool__") == "branch"
    assert act("bool(x)", via="torch/_tensor_str.py:_str") == "transfer"


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


def test_names_worth_saying():
    assert [library_of(f"{glue}:f") for glue in GLUE] == [""] * len(GLUE)
    assert library_of("torch/nn/functional.py:f") == "torch/nn/functional.py:f"
    assert framework_of("torch/nn/functional.py:f") == ""
    assert framework_of("lightning/loop.py:f") == "lightning/loop.py:f"
