"""Numbers a loop that counts nothing: ``for batch in loader`` becomes ``for step, batch in
enumerate(loader)``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from auditor.patch.module import Change, Module
from auditor.patch.source import Refused, Splice

_NAMES = ("step", "batch_number", "steps_done")


def free_name(module: Module) -> str:
    """A name for the number that nothing in the file uses. Raises :class:`Refused`."""
    used = {name for node in module.parents for name in _identifiers(node)}
    found = next((name for name in _NAMES if name not in used), None)
    if found is None:
        raise Refused("no counter of the steps is in sight, and the names for one are taken")
    if any("enumerate" in _identifiers(node) for node in module.parents if not _reads(node)):
        raise Refused("`enumerate` is something else in this file")
    return found


def number_loop(module: Module, loop: ast.For, name: str) -> Change:
    """The change that counts the rounds of a loop from 0."""
    start, end = module.source.span(loop.target)
    target = module.source.text[start:end]
    bare = isinstance(loop.target, ast.Tuple) and not (
        target.startswith("(") and target.endswith(")")
    )
    opening, closing = (f"{name}, (", ")") if bare else (f"{name}, ", "")
    first, last = module.source.span(loop.iter)
    splices = [
        Splice(start, start, opening),
        Splice(first, first, "enumerate("),
        Splice(last, last, ")"),
    ]
    if closing:
        splices.append(Splice(end, end, closing))
    return Change(tuple(splices), partial(_rewrite, loop, name))


def _rewrite(loop: ast.For, name: str) -> None:
    number = ast.Name(id=name, ctx=ast.Store())
    loop.target = ast.Tuple(elts=[number, loop.target], ctx=ast.Store())
    loop.iter = ast.Call(
        func=ast.Name(id="enumerate", ctx=ast.Load()), args=[loop.iter], keywords=[]
    )


def _reads(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def _identifiers(node: ast.AST) -> Iterator[str]:
    """Names that a node reads or binds; attributes and keywords of calls are none."""
    if isinstance(node, ast.Attribute | ast.keyword):
        return
    for field in ("id", "arg", "name", "asname", "rest"):
        value = getattr(node, field, None)
        if isinstance(value, str):
            yield value.partition(".")[0]
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        yield from node.names
