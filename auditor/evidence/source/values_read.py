"""Which values an expression reads, by name, and whether a name has the same one below."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from auditor.evidence.source.files import Span, name_of, unparsed
from auditor.syntax.index import Index, is_path

MODULES = frozenset({"torch", "math", "np", "numpy", "F"})

SAME = frozenset(("detach", "clone", "contiguous", "data", "cpu", "cuda", "to"))
"""Methods of a tensor whose result has all of its values."""


def unchanged(value: ast.expr) -> str:
    """The name of which an expression has all values: ``z`` of ``z.detach()``; empty for others."""
    value = whole(value)
    return unparsed(value) if isinstance(value, (ast.Name, ast.Attribute)) else ""


def whole(value: ast.expr) -> ast.expr:
    """What an expression has all values of: ``f(x)`` of ``f(x).detach().cpu()``."""
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in SAME
    ):
        value = value.func.value
    return value


def values_at(index: Index, span: Span | None) -> frozenset[str]:
    """Names of what an expression reads: ``loss`` of ``loss.detach().item()``, of
    ``math.isnan(loss)`` and of ``shown.item()`` where ``shown = loss.detach()`` is all it is given.
    """
    node = index.expressions.get(span) if span is not None else None
    return frozenset() if node is None else frozenset(_own(index, each) for each in _values(node))


def _own(index: Index, name: str) -> str:
    given = index.assigned.get(name, ())
    return (unchanged(given[0].value) or name) if len(given) == 1 else name


def _values(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name | ast.Attribute):
        if is_path(node):
            yield unparsed(node)
        else:
            yield from _values(node.value)  # type: ignore[union-attr]
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and name_of(node.func.value) not in MODULES:
            yield from _values(node.func.value)
        for each in (*node.args, *(keyword.value for keyword in node.keywords)):
            yield from _values(each)
    elif isinstance(node, ast.Subscript):
        yield from _values(node.value)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _values(child)


def keeps_its_value(index: Index, name: str, above: int, below: int) -> bool:
    """Whether nothing gives the name another value from one line to another one below it."""
    return not any(
        above <= node.lineno < below and isinstance(node.ctx, ast.Store) and unparsed(node) == name
        for node in index.named.get(name.rpartition(".")[2], ())
    )
