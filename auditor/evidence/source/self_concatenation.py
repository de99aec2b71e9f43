"""Statements that put a tensor behind itself: ``bank = torch.cat([bank, z])``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from auditor.evidence.source.files import Source, lines_of, name_of
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
ADDS, CUTS = frozenset(("append", "extend")), frozenset(("clear", "pop", "popleft", "remove"))
SAME = frozenset(("detach", "clone", "contiguous", "data", "cpu", "cuda", "to"))
"""Methods of a tensor whose result has all of its values."""
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
    """What the statement on the site's line puts behind itself, or behind what the file then keeps
    as it is (``context = torch.cat([self.memory, h]); self.memory = context.detach()``); None where
    it does neither.
    """
    found = list(_assigned(source.nodes(site.file)))
    for each in found:
        if site.line in each.lines:
            kept = next((kept for kept in _kept_as(each, found) if joins(kept, each.value)), None)
            if kept is not None:
                return Accumulated(kept, not _bounded(kept, each, found))
    return None


def accumulated(source: Source) -> Iterator[tuple[Site, str]]:
    """Where the recorded files put a tensor behind itself that nothing cuts, with its name."""
    for file in source.texts:
        found = list(_assigned(source.nodes(file)))
        for each in found:
            kept = accumulated_at(source, Site(file, each.lines.start)) if not each.once else None
            if kept is not None and kept.unbounded:
                yield source.site_of(file, each.value), kept.name


def joined_lists(source: Source) -> Iterator[tuple[Site, str]]:
    """Where a list is appended to that some line of its file joins to a tensor, and that nothing
    cuts, empties or begins anew; with its name.
    """
    for file in source.texts:
        yield from _lists_of(source, file)


def _lists_of(source: Source, file: str) -> Iterator[tuple[Site, str]]:
    assigned = list(_assigned(source.nodes(file)))
    calls = [node for node in source.nodes(file) if isinstance(node, ast.Call)]
    cut = {
        ast.unparse(target.value)
        for node in source.nodes(file)
        if isinstance(node, ast.Delete)
        for target in node.targets
        if isinstance(target, ast.Subscript)
    }
    cut.update(_owner(call) for call in calls if _method(call) in CUTS)
    for call in calls:
        if _method(call) not in ADDS:
            continue
        name = _owner(call)
        begun = [each for each in assigned if each.target == name]
        joined = any(
            name_of(other.func) in JOINS and any(_names(arg, name) for arg in other.args)
            for other in calls
        )
        if (
            joined
            and name not in cut
            and begun
            and all(each.once and isinstance(each.value, ast.List) for each in begun)
        ):
            yield source.site_of(file, call), name


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _owner(call: ast.Call) -> str:
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _bounded(name: str, each: _Assigned, found: Sequence[_Assigned]) -> bool:
    """Whether something in the file cuts what the assignment lets grow, or begins it anew."""
    others = [other for other in found if other.target == name and other != each]
    return isinstance(each.value, ast.Subscript) or any(
        _names(other.value, name) or not (other.once or _unchanged(other.value) == each.target)
        for other in others
    )


def _kept_as(each: _Assigned, found: Sequence[_Assigned]) -> Iterator[str]:
    """Names under which the value of an assignment is kept whole: its own, and those that are given
    nothing but it.
    """
    yield each.target
    for other in found:
        if other != each and _unchanged(other.value) == each.target:
            yield other.target


def _unchanged(value: ast.expr) -> str:
    """The name of which an expression has all values: ``z`` of ``z.detach()``; empty for others."""
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in SAME
    ):
        value = value.func.value
    return ast.unparse(value) if isinstance(value, (ast.Name, ast.Attribute)) else ""


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
        for target in targets:
            yield _Assigned(
                ast.unparse(target), value, lines_of(node), not again and function in ONCE
            )


def joins(target: str, value: ast.expr) -> bool:
    """Whether an expression joins ``target`` and more to one tensor, sliced or not."""
    if isinstance(value, ast.IfExp):
        return joins(target, value.body) or joins(target, value.orelse)
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
