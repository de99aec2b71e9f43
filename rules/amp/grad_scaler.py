"""What the source says of a GradScaler: the call of ``unscale_`` that a function lacks, how soon
the scale grows, whether gradients are multiplied by a factor that a norm decides.
"""

from __future__ import annotations

import ast
import operator
import re

from auditor.evidence.source.files import Source, lines_of, name_of, unparsed
from auditor.model import Site

OPERATORS = {
    ast.Pow: operator.pow,
    ast.Mult: operator.mul,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
}
NEVER = re.compile(r"^(float\(['\"]inf['\"]\)|(math|np|numpy|torch)\.inf|sys\.maxsize)$")
BY_NORM = re.compile(r"norm|clip", re.IGNORECASE)


def growth_interval(source: Source, steps: float) -> Site | None:
    """Where the one GradScaler is made with a ``growth_interval`` of so many steps; None where that
    is not one line, or says no number.
    """
    found = {
        (file, call.lineno): call
        for file, text in source.texts.items()
        for call in (source.nodes(file) if "growth_interval" in text else ())
        if isinstance(call, ast.Call)
        and name_of(call.func) == "GradScaler"
        and any(
            each.arg == "growth_interval" and _number(each.value) == steps for each in call.keywords
        )
    }
    if len(found) != 1:
        return None
    (((file, _), call),) = found.items()
    return source.site_of(file, call)


def multiplies_by_norm(source: Source, site: Site) -> bool:
    """True if the ``mul_`` on the line is given a factor that is made of a norm, or of a bound for
    one, in the same function.
    """
    scope = _scope(source, site)
    given = {
        unparsed(call.args[0])
        for call in source.calls_at(site)
        if name_of(call.func) == "mul_" and call.args
    }
    if scope is None or not given:
        return False
    made = [
        unparsed(node.value)
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign) and given & {unparsed(target) for target in node.targets}
    ]
    divided = [text for text in (*given, *made) if "/" in text]
    return any(BY_NORM.search(text) for text in divided)


def either_or(source: Source, site: Site, method: str) -> bool:
    """True if the line calls ``method`` in one branch of an ``if`` whose other branch calls it as
    well: one of the two runs in an iteration.
    """
    for node in source.nodes(site.file):
        if not isinstance(node, ast.If) or not node.orelse:
            continue
        branches = [
            [call for each in body for call in ast.walk(each) if isinstance(call, ast.Call)]
            for body in (node.body, node.orelse)
        ]
        calls = [[call for call in branch if name_of(call.func) == method] for branch in branches]
        if all(calls) and any(call.lineno == site.line for call in (*calls[0], *calls[1])):
            return True
    return False


def _number(value: ast.expr) -> float | None:
    """A number as written, or a power, product, sum or difference of such."""
    if isinstance(value, ast.Constant):
        number = value.value
        return float(number) if isinstance(number, int | float) else None
    if isinstance(value, ast.BinOp) and type(value.op) in OPERATORS:
        left, right = _number(value.left), _number(value.right)
        if left is None or right is None or max(abs(left), abs(right)) > 1e6:
            return None
        try:
            return float(OPERATORS[type(value.op)](left, right))
        except (OverflowError, ZeroDivisionError):
            return float("inf")
    return float("inf") if NEVER.match(unparsed(value)) else None


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
    steps = {(_owner(call), unparsed(call.args[0])) for call in calls if _is_scaler_step(call)}
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
    return {f"{_owner(step)}.unscale_({unparsed(step.args[0])})" for step in steps}


def _scope(source: Source, site: Site) -> ast.AST | None:
    """The innermost function around the line, else the module."""
    nodes = list(source.nodes(site.file))
    around = [
        node for node in nodes if isinstance(node, ast.FunctionDef) and site.line in lines_of(node)
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
    return unparsed(call.func.value) if isinstance(call.func, ast.Attribute) else ""
