"""The one assignment whose value a name has where it is read, and which nothing else reads."""

import ast
from collections.abc import Mapping

from auditor.syntax.index import LOOPS, SCOPES, above, blocks_of

Parents = Mapping[ast.AST, ast.AST]

_HOMES = (*SCOPES, ast.Module)


def given_for(use: ast.Name, parents: Parents) -> ast.Assign | None:
    """``x = torch.ones(n)`` of the ``x`` in ``x.to(device)``: it always runs before, and only this
    use reads or changes its result; None if that is not certain. A use in a statement that
    assigns the name again (``x = x.to(device)``) may be followed by others.
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
    of_given = set(ast.walk(given))
    rest = [node for node in others if node not in of_given]
    if any(_place(given) < _place(node) < _place(own) for node in rest):
        return None
    if any(_is_read(node) and node in inside and node is not use for node in names):
        return None
    if not any(
        given in block and not around.isdisjoint(block) for each in up for block in blocks_of(each)
    ):
        return None
    same_turn = _turn(given, parents) is _turn(own, parents)
    if any(node in inside and not _is_read(node) for node in names):
        return given if same_turn else None
    alone = not any(map(_is_read, rest)) and (same_turn or not rest)
    return given if alone else None


def bound_before(value: ast.expr, given: ast.Assign, parents: Parents) -> bool:
    """Whether names in an expression have at ``given`` what they have below, as is known."""
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


# -- tensor factories ------------------------------------------------------------------------------
# Names of torch's functions that make a tensor out of sizes, numbers or chance: evidence tells
# them, patches move them.


FACTORIES = frozenset(
    """
    arange empty empty_like eye full full_like linspace normal ones ones_like rand rand_like randint
    randint_like randn randn_like randperm zeros zeros_like
    """.split()
)

KEEPING = frozenset(
    """
    bool diag expand flip float int logical_not long reshape squeeze t transpose tril triu unsqueeze
    view
    """.split()
)
"""Functions and methods whose result lies where their one tensor does, the same on any device."""


def made_by(value: ast.expr | None) -> ast.Call | None:
    """The call ``torch.<name>(...)`` whose tensor this is, as made or as :data:`KEEPING` leaves it:
    ``torch.ones(n, n)`` of ``torch.tril(torch.ones(n, n)).bool()``; None for any other value.
    """
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        owner = value.func.value
        of_torch = isinstance(owner, ast.Name) and owner.id == "torch"
        if value.func.attr not in KEEPING:
            return value if of_torch else None
        value = (value.args[0] if value.args else None) if of_torch else owner
    return None


def made_for(move: ast.Call, parents: Mapping[ast.AST, ast.AST]) -> ast.Call | None:
    """The call that creates what ``torch.ones(n).to(device)`` moves, also through a name: ``mask =
    torch.ones(n)`` above ``mask.to(device)``, if nothing else reads it before.
    """
    moved = move.func.value if isinstance(move.func, ast.Attribute) else None
    if not isinstance(moved, ast.Name):
        return made_by(moved)
    given = given_for(moved, parents)
    named = [*move.args, *(item.value for item in move.keywords)]
    certain = given is not None and all(bound_before(each, given, parents) for each in named)
    return made_by(given.value) if given is not None and certain else None
