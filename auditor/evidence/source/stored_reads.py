"""Who else reads what a line stores, and whether each of them leaves its gradient alone."""

import ast
from collections.abc import Iterator

from auditor.evidence.source.files import Function, Index, Source, name_of
from auditor.model import Site
from auditor.syntax.index import (
    ADDS_ITEM,
    REACHES_ITEM,
    called_in,
    names_in,
    nodes_in,
    parameters_of,
    targets_of,
)

_CONTAINERS = frozenset({"list", "dict", "set", "deque", "defaultdict", "OrderedDict"})
_NUMBERS = frozenset({"float", "int", "zeros", "zeros_like", "tensor", "item", "tolist", "detach"})
"""Calls that create an object without another reference."""

_CUTTING_METHODS = frozenset({"item", "tolist", "detach", "numpy", "isfinite", "isnan"})
_CUTTING = frozenset({"float", "int", "bool", "len", "str", "repr", "print", "format"})
_COMPUTES = frozenset("sum stack cat mean max min abs norm std median square sqrt exp".split())
"""Calls whose result is all that is made of what they are given."""

_DIFFERENTIATES = frozenset({"backward", "grad"})
_BY_TEXT = frozenset({"globals", "locals", "vars", "eval", "exec", "getattr", "attrgetter"})
_PARTS = (ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Call, ast.List)

_DEEPEST = 4
"""Names that a value is handed on to (``mean = sum(kept) / n``), one after the other."""

Variable = ast.Name | ast.Attribute
Storing = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr


def gradient_read(source: Source, site: Site, *, watched: bool) -> Site | None:
    """The first line that may read with its gradient what the site's line stores, or may know it by
    another name; None if every use in the recorded files leaves the gradient alone. ``watched``:
    it was seen that nothing does on most steps, so that only a line which differentiates counts.

    Variables are told apart by the outermost function that has them, and attributes by nothing but
    their name.
    """
    kinds = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)
    on_line = list(source.index(site.file).on(site.line, ast.stmt))
    own = next((each for each in reversed(on_line) if isinstance(each, kinds)), None)
    stored = None if own is None else _stored_into(own)
    if own is None or stored is None:
        return site
    for file, node in _touching(source, site.file, stored, own, _DEEPEST):
        statement = source.index(file).nearest(node, ast.stmt)
        around = node if statement is None or isinstance(statement, Function) else statement
        if not (watched and _DIFFERENTIATES.isdisjoint(called_in(around))):
            return source.site_of(file, node)  # type: ignore[arg-type]
    return None


def _stored_into(statement: Storing) -> Variable | None:
    target: ast.expr | None = next(iter(targets_of(statement)), None)
    call = statement.value
    stores = isinstance(statement, ast.Expr) and isinstance(call, ast.Call)
    if stores and isinstance(call.func, ast.Attribute) and call.func.attr in ADDS_ITEM:  # type: ignore[union-attr]
        target = call.func.value  # type: ignore[union-attr]
    while isinstance(target, ast.Subscript | ast.Call):
        if isinstance(target, ast.Subscript):
            target = target.value
        elif isinstance(target.func, ast.Attribute) and target.func.attr in REACHES_ITEM:
            target = target.func.value
        else:
            return None
    return target if isinstance(target, Variable) else None


def _touching(
    source: Source, home: str, stored: Variable, own: Storing, deeper: int
) -> Iterator[tuple[str, ast.AST]]:
    """Nodes besides ``own`` that may read the variable with its gradient, with their files."""
    name, attribute = name_of(stored), isinstance(stored, ast.Attribute)
    scope = None if attribute else _scope_of(source.index(home), stored, own)
    for file in source.texts if attribute or scope is None else (home,):
        index = source.index(file)
        for node in index.named.get(name, ()):
            of_class = isinstance(index.parents.get(index.parents[node]), ast.ClassDef)
            kind = type(stored) if attribute or file == home else ast.Attribute
            meant = isinstance(node, kind) or (attribute and of_class)
            if meant and _within(index, scope, node):
                yield from _reading(source, file, node, own, deeper)
        for other in _known_otherwise(index, name, attribute=attribute, home=file == home):
            if _within(index, scope, other):
                yield file, other


def _scope_of(index: Index, stored: ast.expr, own: Storing) -> Function | None:
    """The outermost function around a line that has the variable; None if it is a module's."""
    name, found = name_of(stored), None
    for function in (each for each in index.up(own) if isinstance(each, Function)):
        if any(name in each.names for each in nodes_in(function, ast.Global)):
            return None
        here = name in names_in(function, ast.Store) or name in parameters_of(function)
        found = function if here else found
    return found


def _within(index: Index, scope: Function | None, node: ast.AST) -> bool:
    return scope is None or index.holds(scope, node)


def _known_otherwise(index: Index, name: str, *, attribute: bool, home: bool) -> Iterator[ast.AST]:
    """Where an argument, an import or a text stands for the variable."""
    if attribute:
        named = (each for each in index.of(ast.keyword) if each.arg == name)
        yield from (each.value for each in named if not _is_new(each.value))
    elif home:
        yield from (each for each in index.of(ast.arg) if each.arg == name)
    else:
        for statement in index.of(ast.ImportFrom):
            yield from (statement for each in statement.names if each.name == name)
    if not _BY_TEXT.isdisjoint(index.calls):
        yield from (each for each in index.of(ast.Constant) if each.value == name)


def _reading(
    source: Source, file: str, node: Variable, own: Storing, deeper: int
) -> Iterator[tuple[str, ast.AST]]:
    """The use of the variable, or of what is made of it, that may read or hand on its gradient."""
    index = source.index(file)
    if not isinstance(node.ctx, ast.Load):
        known = deeper < _DEEPEST or isinstance(node.ctx, ast.Del) or index.holds(own, node)
        if not (known or _begins_anew(index, node)):
            yield file, node
        return
    part: ast.AST = node
    for up in index.up(node):
        if up is own or _cuts(up, part):
            return
        if isinstance(up, ast.stmt):
            break
        called = isinstance(call := index.parents[up], ast.Call) and call.func is up
        attribute = isinstance(up, ast.Attribute) and not called
        if attribute or not isinstance(up, _PARTS) or not _computes(index, up):
            yield file, node
            return
        part = up
    target = up.targets[0] if isinstance(up, ast.Assign) and len(up.targets) == 1 else None
    if isinstance(up, ast.Assign) and isinstance(target, ast.Name) and deeper > 0:
        yield from _touching(source, file, target, up, deeper - 1)
    elif not isinstance(up, ast.If | ast.While | ast.Assert | ast.Delete | ast.Expr):
        yield file, node


def _cuts(up: ast.AST, part: ast.AST) -> bool:
    """Whether nothing of the part's gradient is in what is around it."""
    if isinstance(up, ast.Call):
        return name_of(up.func) in (_CUTTING_METHODS if up.func is part else _CUTTING)
    if isinstance(up, ast.Subscript):
        return up.value is part and not isinstance(up.ctx, ast.Load)
    return isinstance(up, ast.Compare | ast.FormattedValue)


def _computes(index: Index, node: ast.AST) -> bool:
    """Whether what is around a part is all that is made of it; what a statement drops is nothing."""
    if not isinstance(node, ast.Call):
        return True
    dropped = ADDS_ITEM | {"clear", "pop", "popleft"}
    name = name_of(node.func)
    return (
        name in _COMPUTES
        or (name in REACHES_ITEM)
        or (name in dropped and isinstance(index.parents[node], ast.Expr))
    )


def _begins_anew(index: Index, node: Variable) -> bool:
    """Whether the variable is given something here that has no other name."""
    parent = index.parents[node]
    if isinstance(parent, ast.Tuple):
        statement = index.parents[parent]
        values = getattr(getattr(statement, "value", None), "elts", ())
        same = isinstance(statement, ast.Assign) and len(values) == len(parent.elts)
        return same and _is_new(values[parent.elts.index(node)])
    if isinstance(parent, ast.Assign):
        return len(parent.targets) == 1 and _is_new(parent.value)
    return isinstance(parent, ast.AugAssign) or (
        isinstance(parent, ast.AnnAssign) and (parent.value is None or _is_new(parent.value))
    )


def _is_new(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        given = nodes_in([*value.args, *value.keywords], ast.Name, ast.Attribute)
        name = name_of(value.func)
        return name in _NUMBERS or (
            name in _CONTAINERS and all(name_of(each) in _CONTAINERS for each in given)
        )
    if isinstance(value, ast.Dict | ast.List | ast.Set | ast.Tuple):
        return all(map(_is_new, value.values if isinstance(value, ast.Dict) else value.elts))
    if isinstance(value, ast.ListComp | ast.DictComp):
        return _is_new(value.value if isinstance(value, ast.DictComp) else value.elt)
    return isinstance(value, ast.Constant | ast.UnaryOp)
