"""Statements of a trainer about its gradients: which clear them, which step with them, which leave."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from auditor.evidence.source.files import name_of, unparsed
from auditor.syntax.index import Loop, nodes_in

STEPS = frozenset({"optim", "opt", "scaler"})
"""Parts of a name that its ``step()`` is an optimizer's or a GradScaler's."""


def leaves(body: list[ast.stmt]) -> bool:
    """The training ends here, or goes on somewhere that this function does not show."""
    last = body[-1]
    ends = (
        isinstance(last, ast.Expr)
        and isinstance(last.value, ast.Call)
        and name_of(last.value.func) in ("exit", "_exit")
    )
    return ends or isinstance(last, ast.Raise | ast.Break)


def ends(body: list[ast.stmt]) -> bool:
    """Nothing behind these statements runs after them."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return ends(last.body) and ends(last.orelse)
    return isinstance(last, ast.Return | ast.Continue | ast.Break | ast.Raise)


def names(node: ast.AST) -> set[str]:
    """Variables, and attributes as they are written: ``self.failed``."""
    return set(map(unparsed, nodes_in(node, ast.Name, ast.Attribute)))


def assigned(body: Iterable[ast.AST]) -> set[str]:
    """Variables and attributes that these statements assign, as they are written."""
    named = nodes_in(body, ast.Name, ast.Attribute)
    return {unparsed(each) for each in named if isinstance(each.ctx, ast.Store)}


def clearings(body: Iterable[ast.AST]) -> Iterator[int]:
    """Lines that clear gradients."""
    nodes = nodes_in(body, ast.Call, ast.Assign, ast.Delete)
    return (node.lineno for node in nodes if clears(node))


def clears(node: ast.AST) -> bool:
    """``zero_grad()``, ``p.grad = None``, ``del p.grad`` or ``p.grad.zero_()``."""
    if isinstance(node, ast.Call):
        emptied = (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "zero_"
            and name_of(node.func.value) == "grad"
        )
        return name_of(node.func) == "zero_grad" or emptied
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
    return any(isinstance(target, ast.Attribute) and target.attr == "grad" for target in targets)


def steps(call: ast.Call) -> bool:
    """The ``step()`` of an optimizer or a GradScaler, by its name."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return False
    owner = name_of(call.func.value).lower()
    return any(part in owner for part in STEPS)


def stepped_behind(
    loop: Loop, behind: Iterable[ast.stmt], skipped: list[ast.stmt], told: set[str]
) -> bool:
    """An optimizer steps behind the loop, which adds up gradients, after an error in one turn.

    ``skipped`` are the statements of that turn behind the error; ``told`` are the names that its
    handler assigns. False where the loop steps or clears by itself, where that turn leaves it, and
    where the names are asked behind it.
    """
    calls = list(nodes_in(loop, ast.Call))
    if any(map(steps, calls)) or any(clearings(loop.body)):
        return False
    if any(nodes_in(skipped, ast.Break, ast.Return, ast.Raise)):
        return False
    asked = told | assigned(skipped)
    for statement in behind:
        if isinstance(statement, ast.If | ast.While) and asked & names(statement.test):
            return False
        if any(clearings([statement])):
            return False
        if any(map(steps, nodes_in(statement, ast.Call))):
            return True
    return False
