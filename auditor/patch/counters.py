"""Finds the integer that counts the steps of the loop or function that a statement stands in."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.patch.module import Module, last_name, same
from auditor.patch.numbering import free_name
from auditor.patch.source import Refused

_LOOPS = (ast.For, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_BARS = frozenset({"tqdm", "track", "progress_bar"})
_UNSEEN = "no counter of the steps is in sight"


@dataclass(frozen=True)
class Counter:
    """An expression that is 0, 1, 2 ... (or starts later) on the steps; ``loop`` is one that must
    be numbered by that name first.
    """

    expression: ast.expr
    loop: ast.For | None = None


def counter_of(module: Module, statement: ast.stmt) -> Counter:
    """What counts the steps on which the statement runs. Raises :class:`Refused`."""
    scope = _step_scope(module, statement)
    found = _loop_variable(scope) if isinstance(scope, ast.For) else None
    if found is not None:
        if any(same(_loaded(node), found) for node in _stores(scope.body)):
            raise Refused(f"`{found.id}` is set again inside its loop")
        return Counter(found)
    for counted in _counted_up(scope):
        if _starts_as_integer(module, counted) and _set_once(scope, counted):
            return Counter(counted)
    if not isinstance(scope, ast.For):
        raise Refused(_UNSEEN)
    return Counter(ast.Name(id=free_name(module), ctx=ast.Load()), scope)


def _step_scope(module: Module, statement: ast.stmt) -> ast.For | ast.While | ast.FunctionDef:
    """The innermost loop around the statement that steps an optimizer, else the innermost loop,
    else the function.
    """
    loops: list[ast.For | ast.While] = []
    below: ast.AST = statement
    for up in module.ancestors(statement):
        if isinstance(up, _LOOPS) and below in up.body:
            loops.append(up)
        if isinstance(up, _FUNCTIONS):
            break
        below = up
    stepping = [loop for loop in loops if _steps_an_optimizer(loop)]
    if stepping or loops:
        return (stepping or loops)[0]
    function = next((up for up in module.ancestors(statement) if isinstance(up, _FUNCTIONS)), None)
    if not isinstance(function, ast.FunctionDef):
        raise Refused(_UNSEEN)
    return function


def _steps_an_optimizer(loop: ast.For | ast.While) -> bool:
    called = (node.func for node in ast.walk(loop) if isinstance(node, ast.Call))
    return any(
        isinstance(func, ast.Attribute)
        and func.attr == "step"
        and "sched" not in ast.unparse(func).lower()
        for func in called
    )


def _loop_variable(loop: ast.For) -> ast.Name | None:
    """``i`` of ``for i in range(n)`` and of ``for i, batch in enumerate(loader)``, a progress bar
    around them or not.
    """
    source = loop.iter
    while isinstance(source, ast.Call) and last_name(source.func) in _BARS and source.args:
        source = source.args[0]
    if not isinstance(source, ast.Call) or not isinstance(source.func, ast.Name):
        return None
    name = source.func.id
    if name in ("range", "trange") and len(source.args) <= 2 and isinstance(loop.target, ast.Name):
        return _name(loop.target)
    if (
        name == "enumerate"
        and isinstance(loop.target, ast.Tuple)
        and isinstance(loop.target.elts[0], ast.Name)
    ):
        return _name(loop.target.elts[0])
    return None


def _name(target: ast.Name) -> ast.Name:
    return ast.Name(id=target.id, ctx=ast.Load())


def _counted_up(scope: ast.For | ast.While | ast.FunctionDef) -> Iterator[ast.expr]:
    """What the scope's own statements, under no condition, count up by one."""
    for node in scope.body:
        if (
            isinstance(node, ast.AugAssign)
            and isinstance(node.op, ast.Add)
            and _is_int(node.value, 1)
        ):
            counted = _loaded(node.target)
            if isinstance(counted, (ast.Name, ast.Attribute)):
                yield counted


def _is_int(node: ast.AST | None, value: int | None = None) -> bool:
    is_int = isinstance(node, ast.Constant) and type(node.value) is int
    return is_int and (value is None or node.value == value)  # type: ignore[union-attr]


def _starts_as_integer(module: Module, counted: ast.expr) -> bool:
    """Something in the file sets it to a plain integer: a tensor that counts would be read on the
    host.
    """
    return any(
        isinstance(node, ast.Assign)
        and _is_int(node.value)
        and any(same(_loaded(target), counted) for target in node.targets)
        for node in module.parents
    )


def _set_once(scope: ast.For | ast.While | ast.FunctionDef, counted: ast.expr) -> bool:
    return sum(same(_loaded(node), counted) for node in _stores(scope.body)) == 1


def _stores(body: list[ast.stmt]) -> Iterator[ast.expr]:
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(
                node.ctx, (ast.Store, ast.Del)
            ):
                yield node


def _loaded(node: ast.expr) -> ast.expr:
    """The same name or dotted path, as it reads when it is used."""
    if isinstance(node, ast.Name):
        return _name(node)
    if isinstance(node, ast.Attribute):
        return ast.Attribute(value=node.value, attr=node.attr, ctx=ast.Load())
    return node
