"""Drops whole statements: lines of their own, parts of ``a; b``, and ``pass`` where nothing would be left."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from auditor.model import Edit
from auditor.patch.module import Change, Module
from auditor.patch.source import Refused, SourceText, Splice


def called_statements(module: Module, edit: Edit) -> list[ast.stmt]:
    """The statements that only make the call which the edit names. Raises :class:`Refused`."""
    found: list[ast.stmt] = []
    for call in module.calls(edit):
        parent = module.parents[call]
        if isinstance(parent, ast.Await):
            parent = module.parents[parent]
        if isinstance(parent, ast.withitem):
            raise Refused(f"`{edit.call}` opens a with block, which would have to be indented anew")
        if not isinstance(parent, ast.Expr):
            raise Refused(f"the value of `{edit.call}` is used on line {edit.site.line}")
        found.append(parent)
    return found


@dataclass(frozen=True)
class Block:
    """One list of statements: the ``field`` of a node (``body``, ``orelse``, ``finalbody``)."""

    owner: ast.AST
    field: str

    @property
    def statements(self) -> list[ast.stmt]:
        """The statements, as they stand in the tree."""
        statements: list[ast.stmt] = getattr(self.owner, self.field)
        return statements


def block_of(module: Module, statement: ast.stmt) -> Block:
    """The block that a statement stands in."""
    owner = module.parents[statement]
    for name, value in ast.iter_fields(owner):
        if isinstance(value, list) and any(item is statement for item in value):
            return Block(owner, name)
    raise AssertionError("a statement stands in no block of its parent")


def drop_statements(module: Module, block: Block, doomed: set[ast.stmt]) -> Change:
    """The one change that drops some statements of a block. Raises :class:`Refused`."""
    statements = list(block.statements)
    left: list[ast.stmt] = [statement for statement in statements if statement not in doomed]
    splices: list[Splice] = []
    if not left and not isinstance(block.owner, ast.Module):
        splices.append(Splice(*module.source.span(statements[0]), "pass"))
        doomed, left = doomed - {statements[0]}, [ast.Pass()]
    splices += (_drop_run(module.source, statements, *run) for run in _runs(module.source, statements, doomed))
    return Change(tuple(splices), partial(setattr, block.owner, block.field, left))


def _runs(source: SourceText, statements: list[ast.stmt], doomed: set[ast.stmt]) -> Iterator[tuple[int, int]]:
    """First and last number of each run of doomed statements that semicolons join."""
    first: int | None = None
    for number, statement in enumerate(statements):
        if statement not in doomed:
            continue
        first = number if first is None else first
        if number + 1 == len(statements) or statements[number + 1] not in doomed or not _joined(source, statements, number):
            yield first, number
            first = None


def _joined(source: SourceText, statements: list[ast.stmt], number: int) -> bool:
    """True if a semicolon joins the statement to the next one."""
    if number + 1 >= len(statements):
        return False
    end, start = source.span(statements[number])[1], _start(source, statements[number + 1])
    between = source.text[end:start].replace("\\\n", " ")
    return between.strip().startswith(";") and "\n" not in between


def _start(source: SourceText, statement: ast.stmt) -> int:
    """Where a statement starts, its decorators included."""
    decorators = getattr(statement, "decorator_list", [])
    return min(source.span(node)[0] for node in (statement, *decorators))


def _drop_run(source: SourceText, statements: list[ast.stmt], first: int, last: int) -> Splice:
    start, end = source.span(statements[first])[0], source.span(statements[last])[1]
    if _joined(source, statements, last):
        return Splice(start, _start(source, statements[last + 1]))
    if source.before(start).strip():
        return Splice(source.span(statements[first - 1])[1], end)
    line = source.line_start(start)
    if source.text[:line].endswith("\\\n"):
        raise Refused("the statement is joined to the line above by a backslash")
    return Splice(line, min(source.line_end(end) + 1, len(source.text)))
