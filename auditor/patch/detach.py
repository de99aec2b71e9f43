"""Finds the value that a line stores or accumulates, and appends ``.detach()`` to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from auditor.model import Edit
from auditor.patch.module import Change, Module, covers, only_alike, same
from auditor.patch.source import Refused, Splice, parse_expression
from auditor.syntax.index import name_of

_SUFFIX = ".detach()"
_STORING_CALLS = frozenset({"append", "appendleft", "add", "put", "extend", "extendleft"})
_LIST_CALLS = frozenset({"extend", "extendleft"})
_TO_NUMBER = frozenset({"item", "tolist", "float", "int", "bool", "len", "str", "round"})
_CUTS_GRAPH = _TO_NUMBER | {"detach", "detach_", "numpy"}
_TAKES_SUFFIX = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
_NEEDS_PARENTHESES = (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.NamedExpr, ast.Await)


@dataclass(frozen=True)
class _Stored:
    """A value, the statement or call that stores it, and that call's name (empty for an
    assignment).
    """

    value: ast.expr
    holder: ast.AST
    call: str = ""


def values_to_detach(module: Module, edit: Edit) -> list[ast.expr]:
    """The expressions that the edit wants detached. Raises :class:`Refused`."""
    stored = [
        item
        for holder in _holders(module, edit)
        for item in _stored(holder, named=bool(edit.value))
    ]
    if not stored:
        raise Refused(f"line {edit.site.line} stores no value that could be detached")
    values = _named_values(module, edit, stored) if edit.value else _sole_values(edit, stored)
    for value in values:
        _expect_tensor(module, value)
    return values


def detach(module: Module, value: ast.expr) -> Change:
    """The change that detaches one expression."""
    start, end = module.source.span(value)
    statement = module.parents[value]
    splices: tuple[Splice, ...] = (Splice(end, end, _SUFFIX),)
    if isinstance(value, _NEEDS_PARENTHESES):
        closing = _own_parenthesis(module, value, statement)
        if closing is not None:
            splices = (Splice(closing, closing, _SUFFIX),)
        else:
            splices = (Splice(start, start, "("), Splice(end, end, f"){_SUFFIX}"))
    called = ast.Call(
        func=ast.Attribute(value=value, attr="detach", ctx=ast.Load()), args=[], keywords=[]
    )
    return Change(splices, partial(module.replace, value, called))


def _own_parenthesis(module: Module, value: ast.expr, statement: ast.AST) -> int | None:
    """Offset behind the parenthesis that already closes around a whole right side, else None."""
    if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        return None
    text = module.source.text
    start, end = module.source.span(value)
    rest = text[end : module.source.span(statement)[1]]
    if rest.lstrip().startswith(")") and text[:start].rstrip().endswith("("):
        return end + rest.index(")") + 1
    return None


def _holders(module: Module, edit: Edit) -> list[ast.AST]:
    """Statements on the line, or the calls that the edit names, that may store a value."""
    if edit.call:
        return [*module.calls(edit)]
    kinds = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)
    here = [
        node for node in module.parents if isinstance(node, kinds) and covers(node, edit.site.line)
    ]
    return [node.value if isinstance(node, ast.Expr) else node for node in here]


def _stored(holder: ast.AST, *, named: bool) -> Iterator[_Stored]:
    """Values that a statement or call stores. ``named``: the edit says which value it means."""
    if isinstance(holder, ast.Assign) and len(holder.targets) > 1:
        raise Refused("the value is assigned to several names at once")
    if isinstance(holder, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and holder.value is not None:
        yield _Stored(holder.value, holder)
    if isinstance(holder, ast.Call):
        name, values = (
            name_of(holder.func),
            [*holder.args, *(item.value for item in holder.keywords)],
        )
        if named or (name in _STORING_CALLS and len(values) == len(holder.args) == 1):
            yield from (_Stored(value, holder, name) for value in values)


def _sole_values(edit: Edit, stored: list[_Stored]) -> list[ast.expr]:
    if any(item.call in _LIST_CALLS for item in stored):
        raise Refused("which element of the list carries the graph is not known")
    only_alike(
        [item.holder for item in stored], f"line {edit.site.line} stores more than one value"
    )
    return [_sole(item.value) for item in stored]


def _named_values(module: Module, edit: Edit, stored: list[_Stored]) -> list[ast.expr]:
    wanted = parse_expression(edit.value)
    inside = [(node, item) for item in stored for node in ast.walk(item.value)]
    found = [
        (node, item) for node, item in inside if isinstance(node, ast.expr) and same(node, wanted)
    ]
    # extend(losses) stores the elements of a list, and a list has no detach(); nor has a function
    # that is called.
    found = [
        (node, item)
        for node, item in found
        if not (node is item.value and item.call in _LIST_CALLS)
    ]
    found = [
        (node, item)
        for node, item in found
        if not _is_callee(module, node) and module.quoted_in(node) is None
    ]
    if not found:
        raise Refused(f"`{edit.value}` is not a value that line {edit.site.line} stores")
    only_alike(
        [item.holder for _, item in found],
        f"line {edit.site.line} stores `{edit.value}` more than once",
    )
    fresh = [node for node, item in found if not _is_cut_above(module, node, item.value)]
    if not fresh:
        raise Refused(f"`{edit.value}` is already detached on line {edit.site.line}")
    return fresh


def _is_callee(module: Module, node: ast.AST) -> bool:
    parent = module.parents[node]
    return isinstance(parent, ast.Call) and parent.func is node


def _is_cut_above(module: Module, node: ast.AST, root: ast.AST) -> bool:
    """True if something between the node and the stored value ``root`` already cuts its graph."""
    while node is not root:
        node = module.parents[node]
        if _cuts(node):
            return True
    return False


def _sole(value: ast.expr) -> ast.expr:
    """The one value inside a literal of one; the value itself if it is no literal."""
    inside: list[ast.expr] | None = None
    if isinstance(value, ast.Dict):
        inside = value.values
    elif isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        inside = value.elts
    if inside is None:
        return value
    if len(inside) != 1:
        raise Refused(
            "several values are stored together, so which one carries the graph is not known"
        )
    return _sole(inside[0])


def _expect_tensor(module: Module, value: ast.expr) -> None:
    code = module.source.code(value)
    if _holds_no_graph(value):
        raise Refused(f"`{code}` already carries no graph")
    if not isinstance(value, (*_TAKES_SUFFIX, *_NEEDS_PARENTHESES)) or _is_not(value):
        raise Refused(f"`{code}` is not an expression that can be detached")
    if module.quoted_in(value) is not None:
        raise Refused(f"`{code}` stands inside an f-string")
    if isinstance(value, (ast.BinOp, ast.UnaryOp, ast.IfExp)) and any(
        _is_number(node) for node in _operands(value)
    ):
        # number * unknown may be a plain number, which has no detach()
        raise Refused(
            f"`{code}` has a plain number in it, so which part carries the graph is not known"
        )


def _is_not(value: ast.expr) -> bool:
    return isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)


def _cuts(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return name_of(node.func) in _CUTS_GRAPH
    return isinstance(node, ast.Attribute) and node.attr == "data"


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and name_of(node.func) in _TO_NUMBER


def _holds_no_graph(value: ast.expr) -> bool:
    return all(_cuts(node) or isinstance(node, ast.Constant) for node in _operands(value))


def _operands(value: ast.expr) -> Iterator[ast.expr]:
    """What arithmetic combines into a value."""
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.BinOp):
            pending += [node.left, node.right]
        elif isinstance(node, ast.UnaryOp):
            pending.append(node.operand)
        elif isinstance(node, ast.IfExp):
            pending += [node.body, node.orelse]
        else:
            yield node
