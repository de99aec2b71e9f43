"""Statements that put a tensor behind itself: ``bank = torch.cat([bank, z])``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from auditor.evidence.source.files import Source, lines_of, name_of, unparsed
from auditor.model import Site
from auditor.syntax.index import LOOPS, Index, grouped, nodes_in, owner_of

JOINS = frozenset(
    "cat concat concatenate stack hstack vstack dstack row_stack column_stack pad".split()
)
"""Last names of torch's functions whose result holds all that they were given."""


ONCE = frozenset(("", "main", "__init__"))
"""Functions that run once; the empty name stands for the file itself."""
ADDS, CUTS = frozenset(("append", "extend")), frozenset(("clear", "pop", "popleft", "remove"))
SAME = frozenset(("detach", "clone", "contiguous", "data", "cpu", "cuda", "to"))
"""Methods of a tensor whose result has all of its values."""


@dataclass(frozen=True)
class Accumulated:
    """A name that grows. ``unbounded``: nothing in its file cuts it, or begins it anew in a loop or
    a function that may run again.
    """

    name: str
    unbounded: bool


class _Assigned(NamedTuple):
    """One assignment; ``once`` where its statement runs a single time, ``unchanged`` the name that it
    keeps whole.
    """

    target: str
    value: ast.expr
    lines: range
    once: bool
    unchanged: str


def accumulated_at(source: Source, site: Site) -> Accumulated | None:
    """What the statement on the site's line puts behind itself, or behind what the file then keeps
    as it is (``context = torch.cat([self.memory, h]); self.memory = context.detach()``); None where
    it does neither.
    """
    assigned = _assignments(source.index(site.file))
    found = (_grown(each, assigned) for each in assigned.on.get(site.line, ()))
    return next((each for each in found if each is not None), None)


def accumulated(source: Source) -> Iterator[tuple[Site, str]]:
    """Where the recorded files put a tensor behind itself that nothing cuts, with its name."""
    for file in source.texts:
        assigned = _assignments(source.index(file))
        for each in assigned.all:
            grown = _grown(each, assigned) if not each.once else None
            if grown is not None and grown.unbounded:
                yield source.site_of(file, each.value), grown.name


def joined_lists(source: Source) -> Iterator[tuple[Site, str]]:
    """Where a list is appended to that some line of its file joins to a tensor, and that nothing
    cuts, empties or begins anew; with its name.
    """
    for file in source.texts:
        yield from _lists_of(source, file)


def _lists_of(source: Source, file: str) -> Iterator[tuple[Site, str]]:
    index = source.index(file)
    begun_once = {
        name
        for name, begun in _assignments(index).to.items()
        if all(each.once and isinstance(each.value, ast.List) for each in begun)
    }
    cut = {
        unparsed(target.value)
        for node in index.of(ast.Delete)
        for target in node.targets
        if isinstance(target, ast.Subscript)
    }
    cut.update(owner_of(call) for name in CUTS for call in index.calls.get(name, ()))
    joined: set[str] = set().union(
        *(_names(arg) for name in JOINS for call in index.calls.get(name, ()) for arg in call.args)
    )
    growing = (joined & begun_once) - cut
    for call in index.of(ast.Call):
        name = owner_of(call) if name_of(call.func) in ADDS else ""
        if name in growing:
            yield source.site_of(file, call), name


class _Assignments:
    """The plain assignments of one file: by line, by target and by what they keep whole."""

    def __init__(self, index: Index) -> None:
        self.all = list(_assigned(index.tree))
        self.on = grouped((line, each) for each in self.all for line in each.lines)
        self.to = grouped((each.target, each) for each in self.all)
        self.keeping = grouped((each.unchanged, each) for each in self.all if each.unchanged)


_assignments = lru_cache(maxsize=1024)(_Assignments)


def _grown(each: _Assigned, found: _Assignments) -> Accumulated | None:
    """What an assignment puts behind itself, under its own name or under one that is given nothing
    but its value.
    """
    joined = _joined(each.value)
    if not joined:
        return None
    keeping = (other.target for other in found.keeping.get(each.target, ()) if other is not each)
    kept = next((name for name in (each.target, *keeping) if name in joined), None)
    return None if kept is None else Accumulated(kept, not _bounded(kept, each, found))


def _bounded(name: str, each: _Assigned, found: _Assignments) -> bool:
    """Whether something in the file cuts what the assignment lets grow, or begins it anew."""
    return isinstance(each.value, ast.Subscript) or any(
        not (other.once or other.unchanged == each.target) or name in _names(other.value)
        for other in found.to.get(name, ())
        if other is not each
    )


def unchanged(value: ast.expr) -> str:
    """The name of which an expression has all values: ``z`` of ``z.detach()``; empty for others."""
    value = whole(value)
    return unparsed(value) if isinstance(value, (ast.Name, ast.Attribute)) else ""


def whole(value: ast.expr) -> ast.expr:
    """What an expression has all values of: ``f(x)`` of ``f(x).detach().cpu()``."""
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in SAME
    ):
        value = value.func.value
    return value


def _assigned(tree: ast.Module | None) -> Iterator[_Assigned]:
    """Every plain assignment of a file, a target each."""
    waiting: list[tuple[ast.AST, str, bool]] = [] if tree is None else [(tree, "", False)]
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
        once, whole = not again and function in ONCE, unchanged(value)
        for target in targets:
            yield _Assigned(unparsed(target), value, lines_of(node), once, whole)


def joins(target: str, value: ast.expr) -> bool:
    """Whether an expression joins ``target`` and more to one tensor, sliced or not."""
    return target in _joined(value)


def _joined(value: ast.expr) -> frozenset[str]:
    """The names that an expression joins to one tensor, sliced or not."""
    if isinstance(value, ast.IfExp):
        return _joined(value.body) | _joined(value.orelse)
    joined = value.value if isinstance(value, ast.Subscript) else value
    while (  # torch.cat([bank, z]).detach()
        isinstance(joined, ast.Call)
        and isinstance(joined.func, ast.Attribute)
        and isinstance(joined.func.value, ast.Call)
        and name_of(joined.func) not in JOINS
    ):
        joined = joined.func.value
    if not isinstance(joined, ast.Call) or name_of(joined.func) not in JOINS:
        return frozenset()
    return frozenset().union(*(_names(each) for each in joined.args))


@lru_cache(maxsize=65536)
def _names(value: ast.expr) -> frozenset[str]:
    return frozenset(map(unparsed, nodes_in(value, ast.Name, ast.Attribute, ast.Subscript)))
