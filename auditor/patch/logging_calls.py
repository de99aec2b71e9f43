"""Which statements do nothing but log, and under which conditions: skipping one leaves the training
as it is.
"""

from __future__ import annotations

import ast

from auditor.patch.effects import writes
from auditor.patch.module import Module
from auditor.patch.source import Refused
from auditor.syntax.index import name_of
from auditor.syntax.logging_calls import counts_its_calls, log_kind

_SCOPES = (ast.For, ast.While, ast.FunctionDef, ast.Lambda, ast.ClassDef)
_SWITCH_CALLS = frozenset(
    "is_main_process is_rank_zero get_rank is_available is_initialized isinstance hasattr getattr".split()
)
_SWITCH_OPERATORS = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)


def expect_only_logs(statement: ast.Expr, *, safe: bool) -> None:
    """Raise :class:`Refused` unless the statement is one call that logs, and its arguments only
    read.

    ``safe``: the edit is to be called safe, which it is not where a file is written.
    """
    call = statement.value
    kind = log_kind(call) if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or kind is None:
        raise Refused("the statement is not a call that only logs")
    if kind == "file" and safe:
        raise Refused("it writes into a file, whose content may be needed")
    if counts_its_calls(call) and not any(item.arg == "step" for item in call.keywords):
        raise Refused(f"`{ast.unparse(call.func)}` without `step` counts its own calls")
    for part in [*call.args, *call.keywords]:
        more = writes(part)
        if isinstance(more, ast.Call):
            raise Refused(f"`{ast.unparse(more.func)}` in the logged values may do more than read")
        if more is not None:
            raise Refused("the logged values do more than read")


def expect_no_interval(module: Module, statement: ast.stmt) -> None:
    """Raise :class:`Refused` unless all conditions around the statement are switches that no step
    changes: ``if verbose:``.
    """
    below: ast.AST = statement
    conditions: list[ast.expr] = []
    for up in module.ancestors(statement):
        if isinstance(up, (ast.AsyncFor, ast.AsyncFunctionDef)):
            raise Refused("the statement is in asynchronous code")
        if isinstance(up, _SCOPES):
            break
        if isinstance(up, ast.If):
            conditions.append(up.test)
        if isinstance(up, ast.ExceptHandler) or type(up).__name__ in {"match_case", "TryStar"}:
            raise Refused("the statement is under a condition already")
        below = up
    scope = module.parents.get(below, module.tree)
    set_there = {name for node in ast.walk(scope) if (name := _stored(node))}
    for test in conditions:
        if not _is_switch(test) or any(_read(node) in set_there for node in ast.walk(test)):
            raise Refused("the statement is under a condition already")


def _is_switch(test: ast.expr) -> bool:
    """True for names, paths, and comparisons of them with a string, a flag or None; of a rank with
    a number.
    """
    if isinstance(test, ast.BoolOp):
        return all(map(_is_switch, test.values))
    if isinstance(test, ast.UnaryOp):
        return isinstance(test.op, ast.Not) and _is_switch(test.operand)
    if isinstance(test, ast.Compare):
        sides = [test.left, *test.comparators]
        plain = all(isinstance(op, _SWITCH_OPERATORS) for op in test.ops) and len(sides) == 2
        numbers = any(
            isinstance(side, ast.Constant) and type(side.value) in (int, float) for side in sides
        )
        written = any(
            isinstance(side, (ast.Constant, ast.Tuple, ast.List, ast.Set)) for side in sides
        )
        of_rank = any("rank" in _name(side).lower() for side in sides)
        return plain and written and (not numbers or of_rank) and all(map(_is_plain, sides))
    return _is_plain(test)


def _is_plain(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return name_of(node.func) in _SWITCH_CALLS and writes(node, asks=True) is None
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return all(map(_is_plain, node.elts))
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, (ast.Name, ast.Constant))


def _name(node: ast.expr) -> str:
    return name_of(node.func if isinstance(node, ast.Call) else node)


def _stored(node: ast.AST) -> str:
    named = isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Load)
    return name_of(node) if named else ""  # type: ignore[arg-type]


def _read(node: ast.AST) -> str | None:
    return name_of(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
