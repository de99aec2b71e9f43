"""Calls of one callable that stand together and need nothing of one another's results."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

from auditor.evidence.source.files import Source, lines_of
from auditor.model import Site

_BLOCKS = ("body", "orelse", "finalbody")


def separate_calls(source: Source, sites: Sequence[Site]) -> bool:
    """True if these lines, one for each call, are statements of one block, one behind the other,
    that assign names, of which none reads what an earlier one of them assigned; and each call is
    written out, with nothing but names for arguments.
    """
    if not sites or len({site.file for site in sites}) != 1:
        return False
    lines = {site.line for site in sites}
    return any(
        _together(statements, len(sites))
        for statements in _statements(source, sites[0].file, lines)
    )


def _statements(source: Source, file: str, lines: set[int]) -> Iterator[list[ast.stmt]]:
    """From the first of the lines to the last, of each block that has them all."""
    first, last = min(lines), max(lines)
    for node in source.nodes(file):
        for name in _BLOCKS:
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            within = [each for each in block if set(lines_of(each)) & set(range(first, last + 1))]
            covered = {line for each in within for line in lines_of(each)}
            if lines <= covered:
                yield within


def _together(statements: list[ast.stmt], calls: int) -> bool:
    assigned: set[str] = set()
    for each in statements:
        if not isinstance(each, (ast.Assign, ast.AnnAssign)) or _nested(each):
            return False
        names = [node for node in ast.walk(each) if isinstance(node, ast.Name)]
        if any(name.id in assigned for name in names if isinstance(name.ctx, ast.Load)):
            return False
        assigned |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    called = Counter(
        ast.dump(node.func)
        for each in statements
        for node in ast.walk(each)
        if isinstance(node, ast.Call) and _plain(node)
    )
    return calls in called.values()


def _nested(statement: ast.stmt) -> bool:
    """Something in it runs any number of times, or later."""
    later = (ast.Lambda, ast.comprehension, ast.IfExp, ast.NamedExpr, ast.Await)
    return any(isinstance(node, later) for node in ast.walk(statement))


def _plain(call: ast.Call) -> bool:
    """Its arguments are names, or attributes and items of names."""
    inside = [node for each in call.args for node in ast.walk(each)]
    return (
        bool(call.args)
        and not call.keywords
        and not any(isinstance(node, (ast.Call, ast.Starred)) for node in inside)
    )
