"""What does the source say where a copy to the device is made: numbers written in Python, or an
index?
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

MAKERS = frozenset({"tensor", "as_tensor", "asarray", "new_tensor", "scalar_tensor"})
"""Functions and methods of torch that make a tensor of what they are given, on any device."""

_COMPUTED = (ast.BinOp, ast.UnaryOp)
_NUMBERS = (int, float, complex)

Position = tuple[int, int, int, int]
"""First and last line, first and last column."""


@dataclass(frozen=True)
class Expression:
    """The call or the subscript that copies, and what is assigned to the subscript."""

    node: ast.Call | ast.Subscript
    assigned: ast.expr | None = None

    @property
    def indexes(self) -> bool:
        """Tensors may stand in its brackets."""
        return isinstance(self.node, ast.Subscript) and not (
            isinstance(self.node.slice, ast.Constant) and self.node.slice.value is Ellipsis
        )


def expression(frame: FrameType) -> Expression | None:
    """What a frame is at, if that is a call or a subscript."""
    return _expression(frame.f_code, frame.f_lasti, frame.f_lineno)


def of_numbers(found: Expression, frame: FrameType, *, index: bool) -> bool:
    """True if numbers of Python's are copied there: ``torch.tensor([1.0, 2.0], device=device)``,
    ``x[0] = 1.0``, and as an ``index`` ``x[[0, 2]]``; also where a variable of the frame holds
    them.
    """
    if isinstance(found.node, ast.Call):
        data = _data_of(found.node)
        return data is not None and _is(data, frame, (*_NUMBERS, list, tuple))
    if not index:
        return found.assigned is not None and _is(found.assigned, frame, _NUMBERS)
    parts = found.node.slice
    listed = parts.elts if isinstance(parts, ast.Tuple) else [parts]
    return any(_is(part, frame, (list, range)) for part in listed)


def _data_of(call: ast.Call) -> ast.expr | None:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in MAKERS:
        return None
    named = (word.value for word in call.keywords if word.arg in ("data", "obj"))
    return call.args[0] if call.args else next(named, None)


def _is(node: ast.expr, frame: FrameType, kinds: tuple[type, ...]) -> bool:
    """Whether an expression is of one of these kinds: as written, or as its variable says now."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, kinds)
    if isinstance(node, (ast.List, ast.ListComp)):
        return list in kinds
    if isinstance(node, ast.Tuple):
        return tuple in kinds
    if isinstance(node, ast.IfExp):
        return _is(node.body, frame, kinds) and _is(node.orelse, frame, kinds)
    if isinstance(node, _COMPUTED):
        parts = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
        return all(_is(part, frame, kinds) for part in parts)
    return isinstance(node, ast.Name) and isinstance(_value(node.id, frame), kinds)


def _value(name: str, frame: FrameType) -> Any:
    return frame.f_locals.get(name, frame.f_globals.get(name))


@lru_cache(maxsize=4096)
def _expression(code: CodeType, lasti: int, line: int) -> Expression | None:
    known = _expressions(code.co_filename)
    at = _position(code, lasti)
    if at is not None:
        return known.get(at)
    here = [each for (first, last, _, _), each in known.items() if first <= line <= last]
    return next(filter(_plain, here), None)


def _plain(found: Expression) -> bool:
    """Without positions (3.10): the kinds that :func:`of_numbers` knows."""
    return isinstance(found.node, ast.Subscript) or _data_of(found.node) is not None


def _position(code: CodeType, lasti: int) -> Position | None:
    positions: Callable[[], Iterator[Any]] | None = getattr(code, "co_positions", None)
    if positions is None:  # before 3.11
        return None
    for index, (line, end_line, column, end_column) in enumerate(positions()):
        if index == lasti // 2:
            return None if None in (line, column) else (line, end_line, column, end_column)
    return None


@lru_cache(maxsize=256)
def _expressions(file: str) -> dict[Position, Expression]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[Position, Expression] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Call, ast.Subscript)):
            found.setdefault(_place(node), Expression(node))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript):
                    found[_place(target)] = Expression(target, node.value)
    return found


def _place(node: ast.expr) -> Position:
    return (
        node.lineno,
        node.end_lineno or node.lineno,
        node.col_offset,
        node.end_col_offset or node.col_offset,
    )
