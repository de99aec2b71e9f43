"""Drops statements. With one go its ``if`` and a blank line too many; comments and imports stay."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
from functools import partial

from auditor.patch.effects import writes
from auditor.patch.module import Block, Change, Module, block_of
from auditor.patch.source import Refused, SourceText, Splice


def drop_statements(module: Module, doomed: Iterable[ast.stmt]) -> Iterator[Change]:
    """The changes that drop statements and what they leave useless.

    Raises :class:`Refused` where something would be left that nobody would write, and may not go.
    """
    gone = set(doomed)
    close(module, gone)
    outermost = [each for each in gone if not any(up in gone for up in module.ancestors(each))]
    blocks: dict[Block, set[ast.stmt]] = {}
    for statement in outermost:
        blocks.setdefault(block_of(module, statement), set()).add(statement)
    for block, lost in blocks.items():
        statements = list(block.statements)
        if isinstance(block.owner, ast.Module) or len(lost) < len(statements):
            splices = tuple(_drop_some(module.source, block, lost))
        else:
            splices = tuple(_nothing_done(module.source, statements))
        yield Change(splices, partial(_take_out, block, lost))


# -- one block -------------------------------------------------------------------------------------


def _take_out(block: Block, lost: set[ast.stmt]) -> None:
    """Other changes may have put statements into the block by now."""
    kept = [statement for statement in block.statements if statement not in lost]
    if not kept and not isinstance(block.owner, ast.Module):
        kept = [ast.Pass()]
    setattr(block.owner, block.field, kept)


def _drop_some(source: SourceText, block: Block, lost: set[ast.stmt]) -> Iterator[Splice]:
    statements = block.statements
    for doomed, numbers in itertools.groupby(
        range(len(statements)), key=lambda number: statements[number] in lost
    ):
        if doomed:
            inside = list(numbers)
            yield _drop_rows(source, block, statements, inside[0], inside[-1])


def _start(source: SourceText, statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", [])
    return min(source.span(node)[0] for node in (statement, *decorators))


def _drop_rows(
    source: SourceText, block: Block, statements: list[ast.stmt], first: int, last: int
) -> Splice:
    start, end = _start(source, statements[first]), source.span(statements[last])[1]
    if source.before(start).strip() or not source.rest_is_idle(end):
        raise Refused("the statement shares its line with another")
    if source.text[: source.line_start(start)].endswith("\\\n"):
        raise Refused("the statement is joined to the line above by a backslash")
    lines, last_statement = source.lines, statements[last]
    decorators = getattr(statements[first], "decorator_list", [])
    begin = min(node.lineno for node in (statements[first], *decorators)) - 1
    behind = last_statement.end_lineno or last_statement.lineno
    before = _blank_rows(lines, range(begin - 1, -1, -1))
    after = _blank_rows(lines, range(behind, len(lines) - (lines[-1] == "")))
    if last + 1 == len(statements):
        return _cut(source, begin - before, behind)
    return _cut(source, begin, behind + (after if not first and not before else min(before, after)))


def _cut(source: SourceText, first: int, behind: int) -> Splice:
    end = source.offset(behind + 1, 0) if behind < len(source.lines) else len(source.text)
    return Splice(source.offset(first + 1, 0), end)


def _nothing_done(source: SourceText, statements: list[ast.stmt]) -> Iterator[Splice]:
    start, end = source.span(statements[0])[0], source.span(statements[-1])[1]
    behind = re.compile(r"[ \t\f]*;?[ \t\f]*(#[^\n]*)?$", re.MULTILINE).match(source.text, end)
    yield Splice(start, behind.end() if behind else end, "pass")


# -- hollow ----------------------------------------------------------------------------------------
# What goes with a dropped statement: the ``if`` around it that would be left with nothing to do.


def close(module: Module, gone: set[ast.stmt]) -> None:
    """Add to ``gone`` each statement that is left hollow by it. Raises :class:`Refused` where one
    may not go and would read badly.
    """
    pending = list(gone)
    while pending:
        owner = module.parents[pending.pop()]
        if isinstance(owner, ast.stmt) and owner not in gone and _goes(module, owner, gone):
            gone.add(owner)
            pending.append(owner)


def is_empty(statements: list[ast.stmt], gone: set[ast.stmt]) -> bool:
    """True if nothing of a block stays; also of one that was never there."""
    return all(statement in gone for statement in statements)


def _goes(module: Module, owner: ast.stmt, gone: set[ast.stmt]) -> bool:
    if not is_empty(getattr(owner, "body", []), gone):
        return False
    if not isinstance(owner, ast.If):
        name = getattr(owner, "name", "") or type(owner).__name__.removeprefix("Async").lower()
        raise Refused(f"the body of `{name}` around the statement would be left with nothing to do")
    if not is_empty(owner.orelse, gone) or module.source.code(owner).startswith("elif"):
        return False  # ``pass`` says what is not done
    if writes(owner.test, asks=True) is not None:
        asked = module.source.code(owner.test).split("\n")[0]
        raise Refused(
            f"`if {asked}:` would be left with nothing to do, and its condition may do more than "
            "ask"
        )
    return True


# -- blank lines -----------------------------------------------------------------------------------


def _blank_rows(lines: list[str], rows: range) -> int:
    count = 0
    for row in rows:
        if lines[row].strip():
            break
        count += 1
    return count
