"""What a line does with the result of ``torch.compile``."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from auditor.evidence.source.files import Source, name_of
from auditor.model import Site

_Assignment = ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class CompileCall:
    """``target`` is the name or attribute that is set to the result, ``argument`` the text of what
    is compiled; both are empty where the line has no such thing.

    ``replaces``: both are the same, so that whoever names it from there on means the compiled one.
    ``read``: the target is named elsewhere in the file, other than to set it.
    """

    target: str
    argument: str
    replaces: bool
    read: bool


def compile_call(source: Source, site: Site) -> CompileCall | None:
    """The one call of ``compile`` whose statement covers the line; None if there is none, or
    several.
    """
    statements = [
        node
        for node in source.nodes(site.file)
        if isinstance(node, ast.Expr | _Assignment)
        and node.lineno <= site.line <= (node.end_lineno or node.lineno)
        and isinstance(node.value, ast.Call)
        and name_of(node.value.func) == "compile"
    ]
    if len(statements) != 1:
        return None
    (statement,) = statements
    call = statement.value
    assert isinstance(call, ast.Call)
    argument = ast.unparse(call.args[0]) if call.args else ""
    targets = _targets(statement)
    if len(targets) != 1 or not isinstance(targets[0], ast.Name | ast.Attribute):
        return CompileCall("", argument, replaces=False, read=False)
    target = ast.unparse(targets[0])
    return CompileCall(
        target, argument, target == argument, _read(source, site.file, statement, targets[0])
    )


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def _read(source: Source, file: str, statement: ast.stmt, target: ast.Name | ast.Attribute) -> bool:
    """Whether a name like it is read anywhere else in the file; an attribute counts whatever owns
    it.
    """
    own = set(map(id, ast.walk(statement)))
    name = target.id if isinstance(target, ast.Name) else target.attr
    return any(
        isinstance(node, ast.Name | ast.Attribute)
        and id(node) not in own
        and isinstance(node.ctx, ast.Load)
        and (node.id if isinstance(node, ast.Name) else node.attr) == name
        for node in source.nodes(file)
    )
