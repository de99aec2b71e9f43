"""Is there anything between the backward calls of a step but backward calls?"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from auditor.evidence.source.files import Source, lines_of, name_of
from auditor.evidence.source.loops import LOOPS
from auditor.model import Site

QUIET_CALLS = frozenset(
    {"backward", "scale", "item", "detach", "float", "mean", "sum", "append"}
    | {"zip", "enumerate", "range", "reversed", "len", "list", "items", "values"}
)
"""Calls that read no gradient and change no parameter."""

_PLAIN = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Pass, ast.For)


def one_after_the_other(source: Source, sites: Sequence[Site]) -> bool:
    """True if nothing between these lines, or in the loop around the one line, can read gradients
    or change parameters: one backward of the sum does the same.
    """
    if not sites or len({site.file for site in sites}) != 1:
        return False
    lines = [site.line for site in sites]
    return any(
        _only_backward(node, block, lines)
        for node in source.nodes(sites[0].file)
        for block in _blocks(node)
    )


def _only_backward(node: ast.AST, block: list[ast.stmt], lines: list[int]) -> bool:
    """Of one block: its statements from the first of the lines to the last, or all of a loop's."""
    looped = isinstance(node, LOOPS) and len(lines) == 1
    between = [
        each
        for each in block
        if looped or set(lines_of(each)) & set(range(min(lines), max(lines) + 1))
    ]
    return (
        (looped or len(between) > 1)
        and all(any(line in lines_of(each) for each in between) for line in lines)
        and all(isinstance(each, _PLAIN) and _quiet(each) for each in between)
    )


def _blocks(node: ast.AST) -> Iterable[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block:
            yield block


def _quiet(statement: ast.stmt) -> bool:
    """It calls nothing but what is known to leave gradients alone, and names none."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and name_of(node.func) not in QUIET_CALLS:
            return False
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            return False
    return True
