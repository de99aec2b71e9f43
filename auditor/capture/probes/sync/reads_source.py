"""The source at a call: tells a device written out as "cpu" from one that a variable decides."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache
from itertools import islice
from types import CodeType
from typing import cast

Position = tuple[int, int, int, int]
"""First and last line, first and last column."""


def statement(file: str, line: int) -> tuple[int, int]:
    """First and last line of the statement (or head) that ``line`` belongs to."""
    within = [extent for extent in _statements(file) if extent[0] <= line <= extent[1]]
    return min(within, key=lambda extent: extent[1] - extent[0], default=(line, line))


@lru_cache(maxsize=256)
def _statements(file: str) -> tuple[tuple[int, int], ...]:
    return tuple(_extent(node) for node in nodes_of(file) if isinstance(node, ast.stmt))


def _extent(node: ast.stmt) -> tuple[int, int]:
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
    return node.lineno, max(node.lineno, last)


def position(code: CodeType, lasti: int) -> Position | None:
    """Position of an instruction's expression; None with ``-X no_debug_ranges``."""
    found = next(islice(code.co_positions(), lasti // 2, None), (None,) * 4)
    return None if None in found else cast("Position", found)


@lru_cache(maxsize=256)
def nodes_of(file: str) -> tuple[ast.AST, ...]:
    """The statements, calls and subscripts of a file; none where it cannot be parsed."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    kinds = (ast.Call, ast.Subscript, ast.stmt)
    return tuple(node for node in ast.walk(tree) if isinstance(node, kinds))
