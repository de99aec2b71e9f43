"""The call of ``unscale_`` that a function with a GradScaler lacks, read off its own source."""

from __future__ import annotations

import ast

from auditor.evidence.source.files import Source, name_of
from auditor.model import Site


def unscale_call(source: Source, site: Site) -> str:
    """``scaler.unscale_(optimizer)`` as it would be written on the site's line; empty where it is
    not clear, or is there.

    Clear means: the function that holds the line scales a loss and steps one optimizer, both by the
    same scaler.
    """
    calls = (
        [node for node in ast.walk(scope) if isinstance(node, ast.Call)]
        if (scope := _scope(source, site))
        else []
    )
    steps = {(_owner(call), ast.unparse(call.args[0])) for call in calls if _is_scaler_step(call)}
    scaled = {_owner(call) for call in calls if name_of(call.func) == "scale"}
    if len(steps) != 1 or any(name_of(call.func) == "unscale_" for call in calls):
        return ""
    ((scaler, optimizer),) = steps
    return f"{scaler}.unscale_({optimizer})" if scaler in scaled else ""


def unscale_calls(tree: ast.Module, call: ast.Call | None) -> set[str]:
    """``scaler.unscale_(optimizer)`` of each ``scaler.step(optimizer)`` of a file."""
    steps = (
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_scaler_step(node)
    )
    return {f"{_owner(step)}.unscale_({ast.unparse(step.args[0])})" for step in steps}


def _scope(source: Source, site: Site) -> ast.AST | None:
    """The innermost function around the line, else the module."""
    nodes = list(source.nodes(site.file))
    around = [
        node
        for node in nodes
        if isinstance(node, ast.FunctionDef) and node.lineno <= site.line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=next(iter(nodes), None))


def _is_scaler_step(call: ast.Call) -> bool:
    if name_of(call.func) != "step" or len(call.args) != 1 or call.keywords:
        return False
    return _is_path(call.func) and _is_path(call.args[0])


def _is_path(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _owner(call: ast.Call) -> str:
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
