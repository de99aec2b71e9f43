"""Names of torch's functions that make a tensor out of sizes, numbers or chance: evidence tells
them, patches move them.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from auditor.syntax.reaching import bound_before, given_for

FACTORIES = frozenset(
    [
        "arange",
        "empty",
        "empty_like",
        "eye",
        "full",
        "full_like",
        "linspace",
        "normal",
        "ones",
        "ones_like",
        "rand",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "randperm",
        "zeros",
        "zeros_like",
    ]
)

KEEPING = frozenset(
    [
        "bool",
        "diag",
        "expand",
        "flip",
        "float",
        "int",
        "logical_not",
        "long",
        "reshape",
        "squeeze",
        "t",
        "transpose",
        "tril",
        "triu",
        "unsqueeze",
        "view",
    ]
)
"""Functions and methods whose result lies where their one tensor does, and is the same on any
device.
"""


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
    """The same of what ``torch.ones(n).to(device)`` moves, also where it has a name:
    ``mask = torch.ones(n)`` above ``mask.to(device)``, if nobody else reads it before.
    """
    moved = move.func.value if isinstance(move.func, ast.Attribute) else None
    if not isinstance(moved, ast.Name):
        return made_by(moved)
    given = given_for(moved, parents)
    named = [*move.args, *(item.value for item in move.keywords)]
    certain = given is not None and all(bound_before(each, given, parents) for each in named)
    return made_by(given.value) if given is not None and certain else None
