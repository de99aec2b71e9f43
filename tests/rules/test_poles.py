"""Operators where their derivative is infinite: what is said, and the one edit."""

import pytest
from auditor.rules.num.formulas import (
    LOGARITHM,
    POLES,
    UNASKED,
    epsilon_in_root,
    pole_said,
    remedy_of,
)

from auditor.evidence.source.files import Source
from auditor.model import Site
from tests.rules.asking import delicate


def root(op="sqrt", dtype="float32", **more):
    facts = {"low": 0.0, "high": 4.0, "steps": 2, **more}
    return delicate(Site("a.py", 1), "gradient", op, dtype, **facts)


@pytest.mark.parametrize(
    ("change", "stood"),
    [
        ({}, "sqrt got 0"),
        ({"low": -2.5}, "sqrt got values down to -2.5"),
        ({"low": None}, "sqrt got 0"),
        ({"op": "pow", "scalar": 0.3333}, "a power of 0.333 got 0"),
        ({"op": "div", "low": -1.0}, "a divisor was 0"),
        ({"op": "reciprocal"}, "a divisor was 0"),
        ({"op": "exp", "dtype": "float16"}, "exp overflowed in float16"),
        ({"op": "acos"}, "acos got 1 or -1 or more"),
        ({"op": "asin"}, "asin got 1 or -1 or more"),
        ({"op": "log", "low": -0.0}, "log got 0"),
    ],
    ids=str,
)
def test_where_it_stood(change, stood):
    said = pole_said(root(**change), 3)
    assert said.startswith(f"{stood}: its derivative there is infinite")
    assert said.endswith("not finite on 2 of 3 watched steps")


def test_a_result_that_was_not_used():
    unasked = root(unasked=True)
    assert "was not used there, but 0 times infinity is NaN" in pole_said(unasked, 3)
    assert remedy_of(unasked) == f"{UNASKED} {POLES['sqrt']}"
    assert (remedy_of(root()), remedy_of(root("log"))) == (POLES["sqrt"], LOGARITHM)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("torch.sqrt(x)", "sqrt(x + 1e-12)"),
        ("torch.sqrt(x * y)", "sqrt(x * y + 1e-12)"),
        ("x.sum().sqrt()", "add(1e-12).sqrt()"),
        ("sqrt(x)", None),
        ("math.sqrt(x)", None),
        ("np.sqrt(x)", None),
        ("x.sqrt(1)", None),
        ("torch.sqrt(x, y)", None),
        ("torch.sqrt(*x)", None),
        ("torch.sqrt(x, out=y)", None),
        ("torch.sqrt(x) + torch.sqrt(y)", None),
        ("torch.exp(x)", None),
    ],
)
def test_an_epsilon_in_the_only_root(text, value):
    edit = epsilon_in_root(Source({"a.py": text}), root())
    assert (edit.value if edit is not None else None) == value
    if value is not None:
        assert (edit.action, edit.call, edit.safe) == ("rename_call", "sqrt", False)


@pytest.mark.parametrize(
    ("change", "edited"),
    [
        ({}, True),
        ({"dtype": "float64"}, True),
        ({"dtype": "float16"}, False),
        ({"low": -1.0}, False),
        ({"low": 1e-30}, False),
        ({"low": None}, False),
        ({"op": "rsqrt"}, False),
    ],
    ids=str,
)
def test_only_a_root_of_zero_in_a_dtype_that_holds_it(change, edited):
    source = Source({"a.py": "torch.sqrt(x)"})
    assert (epsilon_in_root(source, root(**change)) is not None) is edited
