"""Lines of the program's own text that may be to blame where no operator can say so: where sets are
put in an order, hashes or addresses taken, generators made without a seed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from auditor.syntax.index import index_of, name_of, nodes_in, targets_of

NO_ORDER = frozenset(
    "sorted len set frozenset min max any all isinstance type bool update union add discard".split()
)
"""Calls that ask nothing of the order of a set."""

SET_METHODS = frozenset("union intersection difference symmetric_difference copy".split())

GENERATORS = {
    "numpy": ("default_rng",),
    "system": ("Random", "RandomState", "default_rng", "uuid4", "urandom"),
}
"""Calls that, without arguments, differ from run to run; by cause."""


BLAMED = ("hash", *GENERATORS)
"""The causes that have such lines."""


def lines_to_blame(text: str, cause: str) -> list[int]:
    """Lines of a file, in order; ``hash`` also stands for addresses. Empty for text that is no
    Python, and for other causes.
    """
    tree = index_of(text).tree
    if tree is None:
        return []
    if cause == "hash":
        return sorted(set(_orders(tree)) or set(_sets(tree)))
    calls = (call for call in nodes_in(tree, ast.Call) if not call.args and not call.keywords)
    return sorted(
        {call.lineno for call in calls if name_of(call.func) in GENERATORS.get(cause, ())}
    )


def _orders(tree: ast.Module) -> Iterator[int]:
    """Where a set becomes a sequence, or a hash or an address a number."""
    named = {
        name_of(target)
        for given in nodes_in(tree, ast.Assign, ast.AnnAssign)
        if given.value is not None and _is_set(given.value, frozenset())
        for target in targets_of(given)
    } - {""}
    for call in nodes_in(tree, ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id in ("hash", "id"):
            yield call.lineno
        elif name_of(call.func) not in NO_ORDER:
            yield from (each.lineno for each in call.args if _is_set(each, named))
    for loop in nodes_in(tree, ast.For, ast.comprehension):
        if _is_set(loop.iter, named):
            yield loop.iter.lineno


def _sets(tree: ast.Module) -> Iterator[int]:
    for node in nodes_in(tree, ast.expr):
        if _is_set(node, frozenset()):
            yield node.lineno


def _is_set(node: ast.expr, named: frozenset[str] | set[str]) -> bool:
    """A set, by how it is written; ``named`` are variables and attributes that hold one."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in SET_METHODS:
            return _is_set(node.func.value, named)
        return isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub):
        return _is_set(node.left, named) or _is_set(node.right, named)
    if isinstance(node, ast.Name | ast.Attribute):
        return name_of(node) in named
    return isinstance(node, ast.Set | ast.SetComp)
