"""Which loop a line of the source stands in."""

from __future__ import annotations

import ast

from auditor.evidence.source.files import Function, Source, name_of
from auditor.model import Site

LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
DEEPEST = 3
"""Calls of the program's functions that are followed."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def loop_around(source: Source, site: Site) -> int | None:
    """First line of the innermost loop or comprehension around the site, in the same function; None
    if there is none.
    """
    innermost: ast.AST | None = None
    for node in source.nodes(site.file):
        if isinstance(node, (*LOOPS, *COMPREHENSIONS, *FUNCTIONS)) and _covers(node, site.line):
            innermost = node  # ast.walk goes by depth: later is further inside
    if innermost is None or isinstance(innermost, FUNCTIONS):
        return None
    return getattr(innermost, "lineno", None)


def _covers(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    if isinstance(node, ast.Lambda) and first == line:
        return False  # a key function within the line
    return first <= line <= (last or first)


def trains(source: Source, file: str, head: int) -> bool:
    """True if the loop that begins there runs a backward in each turn, itself or in a function of
    the program: it is the training's.
    """
    bodies = [
        node for node in source.nodes(file) if isinstance(node, LOOPS) and node.lineno == head
    ]
    return any(_runs_backward(source, body, DEEPEST) for body in bodies)


def _runs_backward(source: Source, body: ast.AST, depth: int) -> bool:
    called = {name_of(node.func) for node in ast.walk(body) if isinstance(node, ast.Call)}
    if "backward" in called:
        return True
    return depth > 0 and any(
        _runs_backward(source, node, depth - 1)
        for file in source.texts
        for node in source.nodes(file)
        if isinstance(node, Function) and node.name in called and node is not body
    )
