"""Statements that put a tensor behind itself: ``bank = torch.cat([bank, z])``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from auditor.evidence.source.files import Source, name_of
from auditor.model import Site

JOINS = frozenset(
    (
        "cat",
        "concat",
        "concatenate",
        "stack",
        "hstack",
        "vstack",
        "dstack",
        "row_stack",
        "column_stack",
        "pad",
    )
)
"""Last names of torch's functions whose result holds all that they were given."""


ONCE = frozenset(("", "main", "__init__"))
"""Functions that run once; the empty name stands for the file itself."""
LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True)
class Accumulated:
    """A name that grows. ``unbounded``: nothing in its file cuts it, or begins it anew in a loop or
    a function that may run again.
    """

    name: str
    unbounded: bool


class _Assigned(NamedTuple):
    """One assignment; ``once`` where its statement runs a single time."""

    target: str
    value: ast.expr
    lines: range
    once: bool


def accumulated_at(source: Source, site: Site) -> Accumulated | None:
    """What the statement on the site's line puts behind itself; None where it does not."""
    found = list(_assigned(source.nodes(site.file)))
    for each in found:
        if site.line in each.lines and _joins_itself(each.target, each.value):
            others = [other for other in found if other.target == each.target and other != each]
            bounded = isinstance(each.value, ast.Subscript) or any(
                not other.once or _names(other.value, each.target) for other in others
            )
            return Accumulated(each.target, not bounded)
    return None


def _assigned(nodes: Iterator[ast.AST]) -> Iterator[_Assigned]:
    """Every plain assignment of a file, a target each."""
    waiting: list[tuple[ast.AST, str, bool]] = [
        (node, "", False) for node in nodes if isinstance(node, ast.Module)
    ]
    while waiting:
        node, function, again = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function, again = node.name, False
        again = again or isinstance(node, LOOPS)
        waiting.extend((child, function, again) for child in ast.iter_child_nodes(node))
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for target in targets:
            yield _Assigned(ast.unparse(target), value, lines, not again and function in ONCE)


def _joins_itself(target: str, value: ast.expr) -> bool:
    joined = value.value if isinstance(value, ast.Subscript) else value
    while (  # torch.cat([bank, z]).detach()
        isinstance(joined, ast.Call)
        and isinstance(joined.func, ast.Attribute)
        and isinstance(joined.func.value, ast.Call)
        and name_of(joined.func) not in JOINS
    ):
        joined = joined.func.value
    return (
        isinstance(joined, ast.Call)
        and name_of(joined.func) in JOINS
        and any(_names(each, target) for each in joined.args)
    )


def _names(value: ast.expr, target: str) -> bool:
    return any(
        isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and ast.unparse(node) == target
        for node in ast.walk(value)
    )
