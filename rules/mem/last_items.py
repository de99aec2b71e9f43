"""Which of the user's lists are read at their end alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from auditor.evidence.source.files import Index, Source

FILLS = frozenset(("append", "extend"))
"""Methods that put something at the end of a list."""


class LastItems:
    """By the last name of the expression: ``history`` of ``self.history``."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def suffice(self, file: str, name: str) -> bool:
        """Whether lines read the last items of what is called so (``self.seen[*]``), as
        ``seen[-1]``, and none could read another one; of an attribute, the lines of all recorded
        files. An unknown use, as an argument or a value that is returned, may read all of it.
        """
        variable = name.split("[", 1)[0]
        if file not in self._source.texts:
            return False  # it cannot be told
        files = self._source.texts if "." in variable else (file,)
        last = re.split(r"\W+", variable)[-1]
        indices = [self._source.index(one) for one in files]
        uses = {use for each in indices for use in (_uses(each, last) if each.tree else [None])}
        return None not in uses and True in uses


def _uses(index: Index, name: str) -> Iterator[bool | None]:
    """Of each use: True where it reads last items, False where it reads none, None where it may
    read any.
    """
    for node in index.nodes:
        if _may_name(node, name):
            yield None
        elif _named(node, name):
            yield _use(node, index.parents)


def _named(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == name
    return isinstance(node, ast.Name) and node.id == name


def _may_name(node: ast.AST, name: str) -> bool:
    """``getattr(self, "seen")``, ``vars(self)``, a parameter of that name."""
    if isinstance(node, ast.Constant):
        return bool(node.value == name)
    if isinstance(node, ast.arg):
        return node.arg == name
    return _named(node, "__dict__") or _named(node, "vars")


def _use(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool | None:
    if isinstance(getattr(node, "ctx", None), ast.Store):
        return False
    outer = above[node]
    if isinstance(outer, ast.Subscript) and isinstance(outer.ctx, ast.Load):
        return True if outer.value is node and _from_end(outer.slice) else None
    if isinstance(outer, ast.Attribute) and outer.attr in FILLS:
        call = above[outer]
        return False if isinstance(call, ast.Call) and call.func is outer else None
    if isinstance(outer, ast.Call) and _named(outer.func, "len"):
        return False
    return False if _is_test(node, above) else None


def _is_test(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    """``if seen``, ``while not seen and more``: only whether something is in it."""
    outer = above[node]
    while isinstance(outer, (ast.BoolOp, ast.UnaryOp)):
        node, outer = outer, above[outer]
    return isinstance(outer, (ast.If, ast.IfExp, ast.While)) and outer.test is node


def _from_end(index: ast.expr) -> bool:
    """``-1``, ``-2:``: places that stay as near to the end as they are."""
    if isinstance(index, ast.Slice):
        return index.upper is None and index.lower is not None and _from_end(index.lower)
    return (
        isinstance(index, ast.UnaryOp)
        and isinstance(index.op, ast.USub)
        and isinstance(index.operand, ast.Constant)
        and isinstance(index.operand.value, int)
    )
