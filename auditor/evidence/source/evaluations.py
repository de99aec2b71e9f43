"""Does what follows a line evaluate, with gradients off?"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from auditor.evidence.source.files import Function, Source, name_of
from auditor.model import Site
from auditor.syntax.index import called_in, nodes_in

OFF = frozenset({"no_grad", "inference_mode", "set_grad_enabled"})
"""What turns gradients off, as a context manager or a decorator."""


def evaluates(source: Source, site: Site) -> bool:
    """True if the line's function turns gradients off as a whole or in a block behind the line, or
    calls a function there that does.
    """
    function = source.index(site.file).scope_at(site.line)
    if function is None:
        return False
    if isinstance(function, Function) and is_decorated_off(function):
        return True
    if any(node.lineno >= site.line and turns_off(node) for node in nodes_in(function, ast.stmt)):
        return True
    called = {
        name_of(call.func) for call in nodes_in(function, ast.Call) if call.lineno >= site.line
    }
    return any(each.name in called and _is_off(each) for _, each in source.functions)


TRAINS = frozenset(
    ("backward", "grad", "step", "zero_grad", "requires_grad_", "enable_grad", "set_grad_enabled")
)
"""Calls of which a function that evaluates has none."""


def evaluating(source: Source, site: Site) -> Site | None:
    """Where the function around a line begins, if all that it does is to evaluate: it turns a module
    to eval mode and computes no gradient. None for any other.
    """
    function = source.index(site.file).scope_at(site.line)
    if not isinstance(function, ast.FunctionDef):
        return None
    called = called_in(function)
    if "eval" not in called or called & TRAINS:
        return None
    return source.site_of(site.file, function)


def _is_off(function: Function) -> bool:
    return is_decorated_off(function) or any(map(turns_off, nodes_in(function, ast.stmt)))


def is_decorated_off(function: Function) -> bool:
    """Gradients are off in all of it."""
    return _any_off(function.decorator_list)


def turns_off(node: ast.AST) -> bool:
    """A block without gradients begins here, or they are off from here on."""
    if isinstance(node, ast.With):
        return _any_off(item.context_expr for item in node.items)
    return isinstance(node, ast.Expr) and _any_off([node.value])


def _any_off(asked: Iterable[ast.expr]) -> bool:
    names = (name_of(each.func if isinstance(each, ast.Call) else each) for each in asked)
    return any(name in OFF for name in names)
