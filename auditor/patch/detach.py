"""Finds the value that a line stores or accumulates, and appends ``.detach()`` to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from auditor.model import Edit
from auditor.patch.module import Change, Module, covers, only_alike
from auditor.patch.source import Refused, Splice
from auditor.syntax.index import ADDS_ITEM, name_of

_SUFFIX = ".detach()"
_TO_NUMBER = frozenset({"item", "tolist", "float", "int", "bool", "len", "str", "round"})
_CUTS_GRAPH = _TO_NUMBER | {"detach", "detach_", "numpy"}
_TAKES_SUFFIX = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
_NEEDS_PARENTHESES = (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.NamedExpr, ast.Await)
_STATEMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign)


def values_to_detach(module: Module, edit: Edit) -> list[ast.expr]:
    """The expressions that the edit wants detached. Raises :class:`Refused`."""
    line = edit.site.line
    stored = [
        (node, value)
        for node in module.parents
        if isinstance(node, (*_STATEMENTS, ast.Expr)) and covers(node, line)
        for value in _stored(node)
    ]
    if not stored:
        raise Refused(f"line {line} stores no value that could be detached")
    only_alike([node for node, _ in stored], f"line {line} stores more than one value")
    values = [_sole(value) for _, value in stored]
    for value in values:
        _expect_tensor(module, value)
    return values


def detach(module: Module, value: ast.expr) -> Change:
    """The change that detaches one expression."""
    start, end = module.source.span(value)
    splices: tuple[Splice, ...] = (Splice(end, end, _SUFFIX),)
    if isinstance(value, _NEEDS_PARENTHESES):
        closing = _own_parenthesis(module, value, module.parents[value])
        if closing is not None:
            splices = (Splice(closing, closing, _SUFFIX),)
        else:
            splices = (Splice(start, start, "("), Splice(end, end, f"){_SUFFIX}"))
    called = ast.Call(
        func=ast.Attribute(value=value, attr="detach", ctx=ast.Load()), args=[], keywords=[]
    )
    return Change(splices, partial(module.replace, value, called))


def _own_parenthesis(module: Module, value: ast.expr, statement: ast.AST) -> int | None:
    """Offset behind the parenthesis that already closes around a whole right side, else None."""
    if not isinstance(statement, _STATEMENTS):
        return None
    text = module.source.text
    start, end = module.source.span(value)
    rest = text[end : module.source.span(statement)[1]]
    if rest.lstrip().startswith(")") and text[:start].rstrip().endswith("("):
        return end + rest.index(")") + 1
    return None


def _stored(statement: ast.stmt) -> Iterator[ast.expr]:
    """What a statement stores: its right side, or the one argument of ``losses.append(...)``."""
    if isinstance(statement, ast.Assign) and len(statement.targets) > 1:
        raise Refused("the value is assigned to several names at once")
    if isinstance(statement, _STATEMENTS) and statement.value is not None:
        yield statement.value
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if len(call.args) != 1 or call.keywords:
            return
        if name_of(call.func) in {"extend", "extendleft"}:
            raise Refused("which element of the list carries the graph is not known")
        if name_of(call.func) in ADDS_ITEM:
            yield call.args[0]


def _sole(value: ast.expr) -> ast.expr:
    """The one value inside a literal of one; the value itself if it is no literal."""
    inside: list[ast.expr] | None = None
    if isinstance(value, ast.Dict):
        inside = value.values
    elif isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        inside = value.elts
    if inside is None:
        return value
    if len(inside) != 1:
        raise Refused(
            "several values are stored together, so which one carries the graph is not known"
        )
    return _sole(inside[0])


def _expect_tensor(module: Module, value: ast.expr) -> None:
    code = module.source.code(value)
    if all(_cuts(node) or isinstance(node, ast.Constant) for node in _operands(value)):
        raise Refused(f"`{code}` already carries no graph")
    if not isinstance(value, (*_TAKES_SUFFIX, *_NEEDS_PARENTHESES)) or _is_not(value):
        raise Refused(f"`{code}` is not an expression that can be detached")
    if module.quoted_in(value) is not None:
        raise Refused(f"`{code}` stands inside an f-string")
    if isinstance(value, (ast.BinOp, ast.UnaryOp, ast.IfExp)) and any(
        isinstance(node, ast.Call) and name_of(node.func) in _TO_NUMBER for node in _operands(value)
    ):
        # number * unknown may be a plain number, which has no detach()
        raise Refused(
            f"`{code}` has a plain number in it, so which part carries the graph is not known"
        )


def _is_not(value: ast.expr) -> bool:
    return isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)


def _cuts(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return name_of(node.func) in _CUTS_GRAPH
    return isinstance(node, ast.Attribute) and node.attr == "data"


def _operands(value: ast.expr) -> Iterator[ast.expr]:
    """What arithmetic combines into a value."""
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.BinOp):
            pending += [node.left, node.right]
        elif isinstance(node, ast.UnaryOp):
            pending.append(node.operand)
        elif isinstance(node, ast.IfExp):
            pending += [node.body, node.orelse]
        else:
            yield node
