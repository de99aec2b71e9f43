"""What a line does with the result of ``torch.compile``."""

import ast
from dataclasses import dataclass

from auditor.evidence.source.files import Source, name_of, unparsed
from auditor.model import Site
from auditor.syntax.index import targets_of

_Assignment = ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class CompileCall:
    """``target`` is the name or attribute that is set to the result, ``argument`` the text of what
    is compiled; both are empty if the line has no such thing.

    ``replaces``: both are the same, so that whoever names it from there on means the compiled one.
    ``read``: the target is named elsewhere in the file, other than to set it.
    """

    target: str
    argument: str
    replaces: bool
    read: bool


def compile_call(source: Source, site: Site) -> CompileCall | None:
    """The one call of ``compile`` whose statement covers the line; None if none or several."""
    statements = [
        node
        for node in source.index(site.file).on(site.line, ast.stmt)
        if isinstance(node, ast.Expr | _Assignment)
        and isinstance(node.value, ast.Call)
        and name_of(node.value.func) == "compile"
    ]
    if len(statements) != 1:
        return None
    (statement,) = statements
    call = statement.value
    assert isinstance(call, ast.Call)
    argument = unparsed(call.args[0]) if call.args else ""
    targets = targets_of(statement)
    if len(targets) != 1 or not isinstance(targets[0], ast.Name | ast.Attribute):
        return CompileCall("", argument, replaces=False, read=False)
    target = unparsed(targets[0])
    return CompileCall(
        target, argument, target == argument, _is_read(source, site.file, statement, targets[0])
    )


def call_past(source: Source, site: Site) -> Site | None:
    """The one line of the file that calls what the site's line gives to the compiler by the name that
    it had before: ``net(x)`` beside ``fast = torch.compile(net)``, ``net.forward(x)`` after
    ``net.compile()``. None if there are several, or none.
    """
    given = [
        name
        for node in source.calls_at(site)
        if name_of(node.func) == "compile" and (name := _compiled_name(node))
    ]
    if len(given) != 1:
        return None
    called, method = given[0]
    calls = source.index(site.file).of(ast.Call)
    lines = {node.lineno for node in calls if _is_call_of(node.func, called, method=method)}
    if len(lines) != 1:
        return None
    (line,) = lines
    return Site(site.file, line)


def _compiled_name(call: ast.Call) -> tuple[str, bool] | None:
    """What is compiled, by its last name, and whether it is by its own method."""
    given = call.args[0] if call.args else None
    method = given is None and isinstance(call.func, ast.Attribute)
    if given is None and isinstance(call.func, ast.Attribute):
        given = call.func.value
    return (name_of(given), method) if isinstance(given, ast.Name | ast.Attribute) else None


def _is_call_of(called: ast.expr, name: str, *, method: bool) -> bool:
    if not method:
        return isinstance(called, ast.Name | ast.Attribute) and name_of(called) == name
    return (
        isinstance(called, ast.Attribute)
        and called.attr == "forward"
        and isinstance(called.value, ast.Name | ast.Attribute)
        and name_of(called.value) == name
    )


def _is_read(
    source: Source, file: str, statement: ast.stmt, target: ast.Name | ast.Attribute
) -> bool:
    """Whether a name like it is read elsewhere in the file; an attribute of whatever owner."""
    name, index = name_of(target), source.index(file)
    named = (node for node in index.named.get(name, ()) if isinstance(node.ctx, ast.Load))
    return any(not index.holds(statement, node) for node in named)
