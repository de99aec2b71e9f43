"""The one assignment whose value a name has where it is read, and which nothing else reads."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from auditor.syntax.index import LOOPS, SCOPES, above, blocks_of

Parents = Mapping[ast.AST, ast.AST]

_HOMES = (*SCOPES, ast.Module)


def given_for(use: ast.Name, parents: Parents) -> ast.Assign | None:
    """``x = torch.ones(n)`` of the ``x`` in ``x.to(device)``: it always runs before, and nobody reads
    or changes what it gives but this use; None where that is not certain. A use in a statement that
    gives the name anew (``x = x.to(device)``) may be followed by others.
    """
    up = list(above(use, parents))
    scope = next((each for each in up if isinstance(each, _HOMES)), None)
    own = next((each for each in up if isinstance(each, ast.stmt)), None)
    if scope is None or own is None or use.id in shared_names(scope):
        return None
    inside, around = set(ast.walk(own)), set(up)
    names = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == use.id]
    others = [node for node in names if node not in inside]
    stores = (node for node in others if not _is_read(node) and _place(node) < _place(own))
    last = max(stores, key=_place, default=None)
    given = parents.get(last) if last is not None else None
    if not isinstance(given, ast.Assign) or given.targets != [last]:
        return None
    between = (node for node in others if _place(given) < _place(node) < _place(own))
    if any(node not in set(ast.walk(given)) for node in between):
        return None
    if any(_is_read(node) and node in inside and node is not use for node in names):
        return None
    if not any(
        given in block and not around.isdisjoint(block) for each in up for block in blocks_of(each)
    ):
        return None
    same_turn = _turn(given, parents) is _turn(own, parents)
    rest = [node for node in others if node not in set(ast.walk(given))]
    if any(node in inside and not _is_read(node) for node in names):
        return given if same_turn else None
    alone = not any(map(_is_read, rest)) and (same_turn or not rest)
    return given if alone else None


def bound_before(value: ast.expr, given: ast.Assign, parents: Parents) -> bool:
    """Whether the names in an expression have where ``given`` stands what they have further below, as
    far as their function shows.
    """
    scope = next(each for each in above(given, parents) if isinstance(each, _HOMES))
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    return not any(
        node.id in names and not _is_read(node) and _place(node) >= _place(given)
        for node in ast.walk(scope)
        if isinstance(node, ast.Name)
    )


def _turn(node: ast.AST, parents: Parents) -> ast.AST | None:
    return next(
        (each for each in above(node, parents) if isinstance(each, (*LOOPS, *_HOMES))), None
    )


def shared_names(scope: ast.AST) -> set[str]:
    """Names that the scope shares with others by ``global`` or ``nonlocal``."""
    shared = (node for node in ast.walk(scope) if isinstance(node, ast.Global | ast.Nonlocal))
    return {name for node in shared for name in node.names}


def _is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _place(node: ast.Name | ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset
