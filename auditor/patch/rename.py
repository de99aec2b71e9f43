"""Replaces a call by another one, reached through the same module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from auditor.model import Edit
from auditor.patch.module import Change, Module, same
from auditor.patch.source import Refused, Splice, parse_expression
from auditor.syntax.index import parents_of


def rename_call(module: Module, call: ast.Call, edit: Edit) -> Change:
    """The change from ``a.b.old(...)`` to ``a.b.<value>``; a bare ``old(...)`` gets the prefix that
    its module is imported by.
    """
    wanted = parse_expression(edit.value)
    name = _leading_name(wanted)
    if name is None:
        raise Refused(f"`{edit.value}` does not start with a name")
    start, end = module.source.span(call)
    if isinstance(call.func, ast.Attribute):
        prefix: ast.expr | None = call.func.value
        start = module.source.span(call.func)[1] - len(call.func.attr)
        if module.source.text[start : start + len(call.func.attr)] != call.func.attr:
            raise Refused(f"`{edit.call}` is written in other characters than Python reads")
        text = edit.value.strip()
    else:
        dotted = _prefix_for(module, edit.call, name.id)
        prefix = parse_expression(dotted) if dotted else None
        text = f"{dotted}.{edit.value.strip()}" if dotted else edit.value.strip()
    new = _prefixed(wanted, name, prefix)
    if same(call, new):
        raise Refused(f"the call is already `{text}`")
    return Change((Splice(start, end, text),), partial(module.replace, call, new))


def _leading_name(expression: ast.expr) -> ast.Name | None:
    """``f`` of ``f(1)`` and of ``f(1).g``."""
    node = expression
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node if isinstance(node, ast.Name) else None


def _prefixed(expression: ast.expr, name: ast.Name, prefix: ast.expr | None) -> ast.expr:
    if prefix is None:
        return expression
    reached = ast.Attribute(value=prefix, attr=name.id, ctx=ast.Load())
    if expression is name:
        return reached
    parents = parents_of(expression)
    setattr(parents[name], "func" if isinstance(parents[name], ast.Call) else "value", reached)
    return expression


def _prefix_for(module: Module, old: str, new: str) -> str:
    """What to write before ``new`` so that it comes from the module that ``old`` was imported from;
    may be empty.
    """
    imports = [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and not node.level
    ]
    homes = {
        node.module
        for node in imports
        for name in node.names
        if name.name == old and name.asname in (None, old)
    }
    if len(homes) != 1 or None in homes:
        raise Refused(f"where `{old}` is imported from is not visible in the file")
    home = str(homes.pop())
    if any(_binds(node, home, new) for node in module.tree.body):
        return ""
    prefix = next(_ways_to(module.tree, home), None)
    if prefix is None:
        raise Refused(
            f"the file lacks `import {home.partition('.')[0]}`, which `{home}.{new}` needs"
        )
    return prefix


def _binds(node: ast.stmt, home: str, name: str) -> bool:
    if not isinstance(node, ast.ImportFrom) or node.level or node.module != home:
        return False
    return any(item.name == name and item.asname in (None, name) for item in node.names)


def _ways_to(tree: ast.Module, home: str) -> Iterator[str]:
    """Dotted names by which imports at the top of the file reach the module ``home``."""
    parent, _, leaf = home.rpartition(".")
    for node in tree.body:
        for item in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else []:
            if (
                isinstance(node, ast.Import)
                and item.asname is None
                and item.name.partition(".")[0] == home.partition(".")[0]
            ):
                yield home
            elif isinstance(node, ast.Import) and (home + ".").startswith(item.name + "."):
                yield f"{item.asname}{home[len(item.name) :]}"
            elif (
                isinstance(node, ast.ImportFrom)
                and not node.level
                and node.module == parent
                and item.name == leaf
            ):
                yield item.asname or item.name
