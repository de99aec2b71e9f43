"""Puts a call before a statement, or after the imports. A report may be a stranger's, so only calls
listed here are written.
"""

from __future__ import annotations

import ast
from functools import partial

from auditor.model import Edit
from auditor.patch.module import Change, Module, covers, same
from auditor.patch.source import Refused, Splice, parse_expression
from auditor.patch.statements import Block, block_of
from auditor.syntax.index import name_of

_BEFORE = frozenset({"unscale_", "zero_grad", "compile"})
_AFTER_IMPORTS = frozenset({"torch.set_float32_matmul_precision"})
_DECORATORS = frozenset({"torch.no_grad"})
_COMPOUND = (
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.If,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.FunctionDef,
    ast.ClassDef,
)


def insert_before(module: Module, edit: Edit) -> Change:
    """The change that puts the call ``value`` on a line of its own before the statement on the
    edit's line.
    """
    call = _wanted_call(edit)
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _BEFORE:
        raise Refused(f"`{edit.value}` is not a call that may be inserted")
    statement = _simple_statement(module, edit)
    start = module.source.span(statement)[0]
    indent = module.source.before(start)
    if indent.strip() or module.source.text[: module.source.line_start(start)].endswith("\\\n"):
        raise Refused("the statement does not begin its line")
    block = block_of(module, statement)
    _expect_new(call, block.statements)
    added = ast.Expr(value=call)
    return Change(
        (Splice(start, start, f"{edit.value.strip()}\n{indent}"),),
        partial(_put, block, added, statement),
    )


def decorate(module: Module, edit: Edit) -> Change:
    """The change that puts ``@value`` right above the function which begins on the edit's line."""
    call = _wanted_call(edit)
    if ast.unparse(call.func) not in _DECORATORS or call.args:
        raise Refused(f"`{edit.value}` is not a decorator that may be put there")
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
    if not any(map(binds_torch, module.tree.body)):
        raise Refused("the file has no `import torch` at its top")
    start = module.source.span(function)[0]
    indent = module.source.before(start)
    if indent.strip():
        raise Refused("the function does not begin its line")
    return Change(
        (Splice(start, start, f"@{edit.value.strip()}\n{indent}"),),
        partial(function.decorator_list.append, call),
    )


def insert_after_imports(module: Module, edit: Edit) -> Change:
    """The change that puts the call ``value`` behind the imports at the top of the file, ``import
    torch`` among them.
    """
    call = _wanted_call(edit)
    if ast.unparse(call.func) not in _AFTER_IMPORTS:
        raise Refused(f"`{edit.value}` is not a call that may be inserted")
    _expect_new(call, module.tree.body)
    last = _last_import(module)
    end = module.source.span(last)[1]
    if not module.source.rest_is_idle(end):
        raise Refused("the last import shares its line with another statement")
    at = module.source.line_end(end)
    block = Block(module.tree, "body")
    return Change(
        (Splice(at, at, f"\n\n{edit.value.strip()}"),),
        partial(_put, block, ast.Expr(value=call), last, after=True),
    )


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


def _simple_statement(module: Module, edit: Edit) -> ast.stmt:
    here = [
        node
        for node in module.parents
        if isinstance(node, ast.stmt) and covers(node, edit.site.line)
    ]
    simple = [node for node in here if not isinstance(node, _COMPOUND)]
    if len(simple) != 1:
        raise Refused(f"line {edit.site.line} is not one plain statement")
    return simple[0]


def _expect_new(call: ast.Call, statements: list[ast.stmt]) -> None:
    for statement in statements:
        for node in ast.walk(statement):
            if (
                isinstance(node, ast.Call)
                and name_of(node.func) == name_of(call.func)
                and same(node.func, call.func)
            ):
                raise Refused(f"`{ast.unparse(call.func)}` is already called there")


def _last_import(module: Module) -> ast.stmt:
    """The last import before the first definition, if one of them binds ``torch``."""
    last, torch = None, False
    for statement in module.tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            last = statement
            torch = torch or binds_torch(statement)
    if last is None or not torch:
        raise Refused("the file has no `import torch` at its top")
    return last


def binds_torch(statement: ast.stmt) -> bool:
    """True if an import makes the name ``torch`` known: ``import torch``, ``import torch.nn``."""
    if not isinstance(statement, ast.Import):
        return False
    return any(
        item.name.partition(".")[0] == "torch" and item.asname is None for item in statement.names
    )


def _put(block: Block, added: ast.stmt, anchor: ast.stmt, *, after: bool = False) -> None:
    statements: list[ast.stmt] = []
    for statement in block.statements:
        pair = [statement, added] if after else [added, statement]
        statements += pair if statement is anchor else [statement]
    setattr(block.owner, block.field, statements)
