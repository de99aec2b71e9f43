"""Which assignment gives a name the value that is read."""

import ast

import pytest

from auditor.syntax.index import parents_of
from auditor.syntax.reaching import given_for


def given(text: str) -> str | None:
    """The assignment for the ``x`` of ``x.to(...)``."""
    tree = ast.parse(text)
    parents = parents_of(tree)
    (use,) = (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "to"
        and isinstance(node.value, ast.Name)
    )
    found = given_for(use, parents)
    return None if found is None else ast.unparse(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = a()\ny = x.to(d)", "x = a()"),
        ("x = a()\nx = x.to(d)\nprint(x)", "x = a()"),
        ("x = 1\nx = a()\ny = x.to(d)", "x = a()"),
        ("x = a()\nif b:\n    y = x.to(d)", "x = a()"),
        ("for i in r:\n    x = a()\n    f(x.to(d))", "x = a()"),
        ("for i in r:\n    x = a()\n    x = x.to(d)\n    print(x)", "x = a()"),
        ("x = a()\nfor i in r:\n    f(x.to(d))", "x = a()"),
        ("def f():\n    x = a()\n    return x.to(d)\ndef g():\n    x = 2", "x = a()"),
    ],
)
def test_the_one_that_is_certain(text, found):
    assert given(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "y = x.to(d)",
        "def f(x):\n    return x.to(d)",
        "x = a()\ndef f():\n    return x.to(d)",
        "x = a()\nx[0] = 1\ny = x.to(d)",
        "x = a()\nx += 1\ny = x.to(d)",
        "x = a()\nx.fill_(1)\ny = x.to(d)",
        "x = a()\ny = x.to(d)\nprint(x)",
        "x = a()\ny = x.to(d) + x",
        "x, z = a()\ny = x.to(d)",
        "x = z = a()\ny = x.to(d)",
        "if b:\n    x = a()\ny = x.to(d)",
        "if b:\n    x = a()\nelse:\n    y = x.to(d)",
        "x = a()\nfor i in r:\n    x = x.to(d)",
        "x = a()\nfor i in r:\n    f(x.to(d))\n    x = b()",
        "for x in r:\n    y = x.to(d)",
        "def f():\n    global x\n    x = a()\n    return x.to(d)",
        "x = a()\ny = x.to(d)\ndef f():\n    return x",
    ],
)
def test_one_that_is_not(text):
    assert given(text) is None
