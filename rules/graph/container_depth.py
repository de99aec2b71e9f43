"""Is what a line stores the tensor itself, or a container in which it lies?"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from auditor.evidence.source.files import Source, name_of
from auditor.model import Site

ADDS_ITEM = frozenset({"append", "appendleft", "add", "put"})
"""Calls that make their argument an item of what they are a method of."""

REACHES_ITEM = frozenset({"setdefault", "get"})


def stores_at_depth(source: Source, site: Site, depth: int) -> bool:
    """True if a value that the line stores lies ``depth`` items below the variable, so that it is
    no container.

    ``kept.append(loss)`` stores at depth 1; if tensors are found at depth 2 there, what it appends
    is a list or a dict of them.
    """
    here = source.index(site.file).on(site.line, ast.stmt)
    return any(depth == found for statement in here for found in _depths(statement))


def _depths(statement: ast.stmt) -> Iterator[int]:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if (
            isinstance(call.func, ast.Attribute)
            and call.func.attr in ADDS_ITEM
            and len(call.args) == 1
        ):
            yield 1 + _levels(call.func.value) + _literals(call.args[0])
    elif isinstance(statement, ast.Assign):
        # Of an unpacked result it is not known which part the variable got.
        targets = [
            target for target in statement.targets if not isinstance(target, (ast.Tuple, ast.List))
        ]
        yield from (_levels(target) + _literals(statement.value) for target in targets)
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)) and statement.value is not None:
        yield _levels(statement.target) + _literals(statement.value)


def _levels(target: ast.expr) -> int:
    """Items between the variable and what is stored into: one for ``hist[k]`` and for
    ``hist.setdefault(k, [])``.
    """
    if isinstance(target, ast.Subscript):
        return 1 + _levels(target.value)
    if (
        isinstance(target, ast.Call)
        and isinstance(target.func, ast.Attribute)
        and name_of(target.func) in REACHES_ITEM
    ):
        return 1 + _levels(target.func.value)
    return 0


def _literals(value: ast.expr) -> int:
    """How deep the literal is that is written around the one value in it."""
    inside = value.values if isinstance(value, ast.Dict) else getattr(value, "elts", None)
    return 0 if not inside else 1 + _literals(inside[0])
