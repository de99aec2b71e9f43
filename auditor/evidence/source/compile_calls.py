"""What a line does with the result of ``torch.compile``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.source.files import Source, name_of, unparsed
from auditor.model import Site
from auditor.syntax.index import nodes_in, targets_of

_Assignment = ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class CompileCall:
    """``target`` is the name or attribute that is set to the result, ``argument`` the text of what
    is compiled; both are empty if the line has no such thing.

    ``replaces``: both are the same, so that whoever names it from there on means the compiled one.
    ``read``: the target is named elsewhere in the file, other than to set it, or to return it with
    others to callers that never name it.
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
        target, argument, target == argument, _read(source, site.file, statement, targets[0])
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


def _read(source: Source, file: str, statement: ast.stmt, target: ast.Name | ast.Attribute) -> bool:
    """Whether a name like it is read elsewhere in the file; an attribute of whatever owner."""
    name, index = name_of(target), source.index(file)
    loads = [node for node in _loads(source, file, name) if not index.holds(statement, node)]
    returned = _returned(source, file, name) if isinstance(target, ast.Name) else {}
    if any(id(node) not in returned for node in loads):
        return True
    return any(_taken(source, returned[id(node)]) for node in loads)


def _loads(source: Source, file: str, name: str) -> Iterator[ast.Name | ast.Attribute]:
    named = source.index(file).named.get(name, ())
    return (node for node in named if isinstance(node.ctx, ast.Load))


@dataclass(frozen=True)
class _Returned:
    """The place of a name among the ``of`` values that a function returns."""

    function: str
    place: int
    of: int


def _returned(source: Source, file: str, name: str) -> dict[int, _Returned]:
    """By the ``id`` of the name: where ``return a, name, b`` has it."""
    found: dict[int, _Returned] = {}
    for function in source.index(file).of(ast.FunctionDef):
        for node in nodes_in(function, ast.Return):
            if isinstance(node.value, ast.Tuple):
                parts = node.value.elts
                for place, part in enumerate(parts):
                    if isinstance(part, ast.Name) and part.id == name:
                        found[id(part)] = _Returned(function.name, place, len(parts))
    return found


def _taken(source: Source, returned: _Returned) -> bool:
    """Whether the name that a caller gives to it is read; also where a caller does anything else
    with what is returned, and where none is seen.
    """
    seen = False
    for file in source.texts:
        given = list(_given(source, file, returned))
        if len(given) != sum(1 for _ in _loads(source, file, returned.function)):
            return True
        for name in given:
            known = _returned(source, file, name)
            if any(id(node) not in known for node in _loads(source, file, name)):
                return True
        seen = seen or bool(given)
    return not seen


def _given(source: Source, file: str, returned: _Returned) -> Iterator[str]:
    """The name that each ``a, name, b = function(...)`` gives to the value."""
    for node in source.index(file).of(ast.Assign):
        if (
            isinstance(node.value, ast.Call)
            and name_of(node.value.func) == returned.function
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Tuple)
            and len(node.targets[0].elts) == returned.of
        ):
            place = node.targets[0].elts[returned.place]
            if isinstance(place, ast.Name):
                yield place.id
