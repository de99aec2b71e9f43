"""Puts a call before a statement, behind the imports, or on a function as its decorator. A report
may be a stranger's, so only calls listed here are written.
"""

from __future__ import annotations

import ast
from functools import partial

from auditor.model import Edit
from auditor.patch.module import Block, Change, Module, block_of, covers, same
from auditor.patch.source import Refused, Splice, parse_expression
from auditor.syntax.index import name_of

_METHODS = frozenset({"unscale_", "zero_grad", "compile"})
_AFTER_IMPORTS = frozenset({"torch.set_float32_matmul_precision"})
_DECORATORS = frozenset({"torch.no_grad"})
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def insert_before(module: Module, edit: Edit) -> Change:
    """The change that puts the call ``value`` on a line before the statement on the edit's."""
    call = _wanted_call(edit)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method not in _METHODS:
        raise _unknown(edit)
    here = [
        node
        for node in module.parents
        if isinstance(node, ast.stmt)
        and covers(node, edit.site.line)
        and not isinstance(getattr(node, "body", None), list)
    ]
    if len(here) != 1:
        raise Refused(f"line {edit.site.line} is not one plain statement")
    (statement,) = here
    added = _line_before(module, statement, edit.value.strip())
    block = block_of(module, statement)
    _expect_new(call, block.statements)
    return Change((added,), partial(_put, block, ast.Expr(value=call), statement))


def decorate(module: Module, edit: Edit) -> Change:
    """The change that puts ``@value`` right above the function which begins on the edit's line."""
    call = _wanted_call(edit)
    if ast.unparse(call.func) not in _DECORATORS or call.args:
        raise _unknown(edit)
    here = [
        node
        for node in module.parents
        if isinstance(node, ast.FunctionDef) and node.lineno == edit.site.line
    ]
    if len(here) != 1:
        raise Refused(f"line {edit.site.line} begins no function")
    (function,) = here
    if any(name_of(call.func) in ast.unparse(each) for each in function.decorator_list):
        raise Refused(f"`{edit.value}` is there already")
    expect_torch(module)
    added = _line_before(module, function, f"@{edit.value.strip()}")
    return Change((added,), partial(function.decorator_list.append, call))


def insert_after_imports(module: Module, edit: Edit) -> Change:
    """The change that puts the call ``value`` behind the file's imports, with ``import torch``."""
    call = _wanted_call(edit)
    if ast.unparse(call.func) not in _AFTER_IMPORTS:
        raise _unknown(edit)
    _expect_new(call, module.tree.body)
    expect_torch(module)
    last = _last_import(module)
    end = module.source.span(last)[1]
    if not module.source.rest_is_idle(end):
        raise Refused("the last import shares its line with another statement")
    at = module.source.line_end(end)
    return Change(
        (Splice(at, at, f"\n\n{edit.value.strip()}"),),
        partial(_put, Block(module.tree, "body"), ast.Expr(value=call), last, after=True),
    )


def expect_torch(module: Module) -> None:
    """Raise :class:`Refused` unless an import at the top of the file makes the name ``torch``
    known: ``import torch``, ``import torch.nn``.
    """
    for statement in module.tree.body:
        for item in statement.names if isinstance(statement, ast.Import) else ():
            if item.name.partition(".")[0] == "torch" and item.asname is None:
                return
    raise Refused("the file has no `import torch` at its top")


def _wanted_call(edit: Edit) -> ast.Call:
    call = parse_expression(edit.value)
    if (
        not isinstance(call, ast.Call)
        or call.keywords
        or not all(map(_is_plain, [call.func, *call.args]))
    ):
        raise Refused(f"`{edit.value}` is not a plain call")
    return call


def _is_plain(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, (ast.Name, ast.Constant))


def _unknown(edit: Edit) -> Refused:
    return Refused(f"`{edit.value}` is not a call that may be inserted")


def _line_before(module: Module, statement: ast.stmt, text: str) -> Splice:
    source = module.source
    start = source.span(statement)[0]
    indent = source.before(start)
    if indent.strip() or source.text[: source.line_start(start)].endswith("\\\n"):
        raise Refused("the statement does not begin its line")
    return Splice(start, start, f"{text}\n{indent}")


def _expect_new(call: ast.Call, statements: list[ast.stmt]) -> None:
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and same(node.func, call.func):
                raise Refused(f"`{ast.unparse(call.func)}` is already called there")


def _last_import(module: Module) -> ast.stmt:
    """The last import before the first definition."""
    last = None
    for statement in module.tree.body:
        if isinstance(statement, _DEFINITIONS):
            break
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            last = statement
    if last is None:
        raise Refused("the file has no import at its top")
    return last


def _put(block: Block, added: ast.stmt, anchor: ast.stmt, *, after: bool = False) -> None:
    statements: list[ast.stmt] = []
    for statement in block.statements:
        pair = [statement, added] if after else [added, statement]
        statements += pair if statement is anchor else [statement]
    setattr(block.owner, block.field, statements)
