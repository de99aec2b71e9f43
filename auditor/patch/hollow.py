"""What goes with a dropped statement: the ``if``, loop or ``with`` around it that would be left
with nothing to do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from auditor.patch.effects import writes
from auditor.patch.module import Module, last_name
from auditor.patch.source import Refused

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_IDLE_CONTEXTS = frozenset(
    {"device", "stream", "no_grad", "inference_mode", "nullcontext", "suppress", "record_function"}
)
"""Context managers without an effect beyond their block."""


def close(module: Module, gone: set[ast.stmt]) -> None:
    """Add to ``gone`` each statement that is left hollow by it. Raises :class:`Refused` where one
    may not go and would read badly.
    """
    pending = list(gone)
    while pending:
        owner = module.parents[pending.pop()]
        if isinstance(owner, ast.stmt) and owner not in gone and _goes(module, owner, gone):
            gone.add(owner)
            pending.append(owner)


def is_empty(statements: list[ast.stmt], gone: set[ast.stmt]) -> bool:
    """True if nothing of a block stays; also of one that was never there."""
    return all(statement in gone for statement in statements)


def _goes(module: Module, owner: ast.stmt, gone: set[ast.stmt]) -> bool:
    if not is_empty(getattr(owner, "body", []), gone):
        return False
    if isinstance(owner, ast.If):
        return _if_goes(module, owner, gone)
    if isinstance(owner, _LOOPS):
        return _loop_goes(module, owner)
    if isinstance(owner, (ast.With, ast.AsyncWith)):
        if not all(map(_is_idle, owner.items)):
            raise Refused("the `with` block around the statement would be left with nothing to do")
        return True
    if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        raise Refused(
            f"`{owner.name}` would be left with nothing to do: take it out together with what uses "
            "it"
        )
    if isinstance(owner, ast.Try) or type(owner).__name__ == "TryStar":
        if not (is_empty(owner.orelse, gone) and is_empty(owner.finalbody, gone)):  # type: ignore[attr-defined]
            raise Refused("the `try` around the statement would be left with nothing to try")
        return True
    return False


def _if_goes(module: Module, owner: ast.If, gone: set[ast.stmt]) -> bool:
    if not is_empty(owner.orelse, gone):
        return False  # the condition is turned around, or `pass` says what is not done
    if writes(owner.test, asks=True) is not None:
        asked = module.source.code(owner.test).split("\n")[0]
        raise Refused(
            f"`if {asked}:` would be left with nothing to do, and its condition may do more than "
            "ask"
        )
    return True


def _loop_goes(module: Module, loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    left = "the loop around the statement would be left with nothing to do"
    if not isinstance(loop, ast.For) or loop.orelse or not _counts(loop.iter):
        raise Refused(left)
    names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    inside = set(ast.walk(loop))
    if any(
        isinstance(node, ast.Name) and node.id in names and node not in inside
        for node in module.parents
    ):
        raise Refused(left)
    return True


def _counts(iterated: ast.expr) -> bool:
    """True for ``range(...)`` and a list that is written out: going through it does nothing by
    itself.
    """
    called = (
        isinstance(iterated, ast.Call)
        and isinstance(iterated.func, ast.Name)
        and iterated.func.id == "range"
    )
    return (called or isinstance(iterated, (ast.List, ast.Tuple))) and writes(
        iterated, asks=True
    ) is None


def _is_idle(item: ast.withitem) -> bool:
    call = item.context_expr
    if (
        item.optional_vars is not None
        or not isinstance(call, ast.Call)
        or last_name(call.func) not in _IDLE_CONTEXTS
    ):
        return False
    return all(writes(part, asks=True) is None for part in _given(call))


def _given(call: ast.Call) -> Iterator[ast.AST]:
    yield from (*call.args, *call.keywords)
