"""Drops statements so that what stays reads as if it had been written so.

With a statement go the ``if`` or loop that only did it, the ``else`` that is empty then, the
comment that described it, a blank line too many, and imports and plain assignments that nothing
reads any more. What nothing read before stays.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from auditor.patch.comments import Rows, comment_above, widened
from auditor.patch.effects import writes
from auditor.patch.module import Change, Module
from auditor.patch.source import Refused, SourceText, Splice, parse_expression
from auditor.patch.statements import Block, block_of
from auditor.patch.unused import Import, Names
from auditor.syntax.index import LOOPS, name_of

_TURNED = {ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"}


@dataclass
class _Gone:
    """All that goes: statements, and some names of imports."""

    statements: set[ast.stmt]
    names: dict[Import, set[ast.alias]] = field(default_factory=dict)


def drop_statements(
    module: Module,
    doomed: Iterable[ast.stmt],
    splices: Sequence[Splice],
    *,
    keep_imports: bool = False,
) -> Iterator[Change]:
    """The changes that drop statements and what they leave useless. ``splices`` are written
    elsewhere by the same patch.

    Raises :class:`Refused` where something would be left that nobody would write, and may not go.
    """
    gone = _all_that_goes(module, set(doomed), splices, keep_imports=keep_imports)
    outermost = [
        each
        for each in gone.statements
        if not any(up in gone.statements for up in module.ancestors(each))
    ]
    blocks: dict[Block, set[ast.stmt]] = {}
    for statement in outermost:
        blocks.setdefault(block_of(module, statement), set()).add(statement)
    for block, lost in blocks.items():
        yield _dropped(module, block, lost)
    for statement, names in gone.names.items():
        yield _without_names(module, statement, names)


def _all_that_goes(
    module: Module, doomed: set[ast.stmt], splices: Sequence[Splice], *, keep_imports: bool
) -> _Gone:
    gone = _Gone(doomed)
    close(module, gone.statements)
    names = Names(module, splices, keep_imports=keep_imports)
    while True:
        unread = names.unread(gone.statements)
        more = {*gone.statements, *unread.statements}
        try:
            close(module, more)
        except Refused:  # they are a whole block: better left than half of it
            return gone
        if len(more) == len(gone.statements):
            return _Gone(gone.statements, unread.names)
        gone = _Gone(more, unread.names)


# -- one block -------------------------------------------------------------------------------------


def _dropped(module: Module, block: Block, lost: set[ast.stmt]) -> Change:
    statements = list(block.statements)
    if isinstance(block.owner, ast.Module) or len(lost) < len(statements):
        return Change(
            tuple(_drop_some(module.source, block, statements, lost)),
            partial(_take_out, block, lost),
        )
    if (
        isinstance(block.owner, ast.If)
        and block.field == "body"
        and not _is_elif(module.source, block.owner.orelse)
    ):
        return _turn_around(module, block.owner)
    if block.field in ("orelse", "finalbody"):
        return _drop_clause(module.source, block, statements)
    splices = tuple(_nothing_done(module.source, statements))
    return Change(splices, partial(setattr, block.owner, block.field, [ast.Pass()]))


def _take_out(block: Block, lost: set[ast.stmt]) -> None:
    setattr(
        block.owner,
        block.field,
        [statement for statement in block.statements if statement not in lost],
    )


def _drop_some(
    source: SourceText, block: Block, statements: list[ast.stmt], lost: set[ast.stmt]
) -> Iterator[Splice]:
    whole: list[tuple[int, int]] = []
    for first, last in _runs(source, statements, lost):
        part = _part_of_a_line(source, statements, first, last)
        if part is not None:
            yield part
        elif whole and whole[-1][1] + 1 == first:
            whole[-1] = whole[-1][0], last
        else:
            whole.append((first, last))
    for first, last in whole:
        yield _drop_rows(source, block, statements, first, last)


def _runs(
    source: SourceText, statements: list[ast.stmt], doomed: set[ast.stmt]
) -> Iterator[tuple[int, int]]:
    """First and last number of each run of doomed statements that semicolons join."""
    first: int | None = None
    for number, statement in enumerate(statements):
        if statement not in doomed:
            continue
        first = number if first is None else first
        if (
            number + 1 == len(statements)
            or statements[number + 1] not in doomed
            or not _joined(source, statements, number)
        ):
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


def _part_of_a_line(
    source: SourceText, statements: list[ast.stmt], first: int, last: int
) -> Splice | None:
    """The cut of a run that shares its line with a statement that stays; None if it has its lines
    for itself.
    """
    start, end = source.span(statements[first])[0], source.span(statements[last])[1]
    if _joined(source, statements, last):
        return Splice(start, _start(source, statements[last + 1]))
    if source.before(start).strip():
        return Splice(source.span(statements[first - 1])[1], end)
    if source.text[: source.line_start(start)].endswith("\\\n"):
        raise Refused("the statement is joined to the line above by a backslash")
    return None


def _drop_rows(
    source: SourceText, block: Block, statements: list[ast.stmt], first: int, last: int
) -> Splice:
    top = isinstance(block.owner, ast.Module)
    rows = Rows(
        statements[first].lineno - 1,
        (statements[last].end_lineno or 0) - 1,
        lowest=_end_row(statements[first - 1])
        if first
        else 0
        if top
        else _head_row(statements[0], block.owner),
        inner=not top and not first,
        last=last + 1 == len(statements),
        top=top,
    )
    return _cut(source, *widened(source, rows, compound=hasattr(statements[last], "body")))


def _end_row(statement: ast.stmt) -> int:
    """The first line (from 0) behind a statement."""
    return statement.end_lineno or statement.lineno


def _head_row(statement: ast.stmt, owner: ast.AST) -> int:
    """The first line (from 0) behind the head of a block; close enough: between head and statement
    stand comments at most.
    """
    return min(getattr(owner, "lineno", 0), statement.lineno - 1)


def _cut(source: SourceText, first: int, behind: int) -> Splice:
    end = source.offset(behind + 1, 0) if behind < len(source.lines) else len(source.text)
    return Splice(source.offset(first + 1, 0), end)


# -- a block that is left empty --------------------------------------------------------------------


def _is_elif(source: SourceText, orelse: list[ast.stmt]) -> bool:
    return (
        len(orelse) == 1
        and isinstance(orelse[0], ast.If)
        and source.code(orelse[0]).startswith("elif")
    )


def _turn_around(module: Module, owner: ast.If) -> Change:
    """``if a: gone else: b`` becomes ``if not a: b``."""
    source = module.source
    start, end = source.span(owner.test)
    turned = _turned(source, owner.test)
    head = _colon(source, end)
    otherwise = _colon(source, _clause(source, owner.body[-1], owner.orelse[0], "else"))

    def rewrite() -> None:
        owner.test, owner.body, owner.orelse = turned[1], owner.orelse, []

    return Change((Splice(start, end, turned[0]), Splice(head, otherwise)), rewrite)


def _turned(source: SourceText, test: ast.expr) -> tuple[str, ast.expr]:
    """Text and syntax of the opposite of a condition."""
    code = source.code(test)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _TURNED:
        left, right = source.code(test.left), source.code(test.comparators[0])
        between = source.text[source.span(test.left)[1] : source.span(test.comparators[0])[0]]
        if re.fullmatch(r" +(is|in|is not|not in) +", between):
            code = f"{left} {_TURNED[type(test.ops[0])]} {right}"
            return code, parse_expression(code)
    if (
        isinstance(test, ast.UnaryOp)
        and isinstance(test.op, ast.Not)
        and isinstance(test.operand, (ast.Name, ast.Attribute))
    ):
        code = source.code(test.operand)
        return code, parse_expression(code)
    plain = isinstance(test, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Compare))
    code = f"not {code}" if plain and "\n" not in code else f"not ({code})"
    return code, parse_expression(code)


def _colon(source: SourceText, start: int) -> int:
    """Offset behind the colon that ends a head: only brackets and comments stand before it."""
    found = re.compile(r"(?:[^:#]|#[^\n]*)*:").match(source.text, start)
    if found is None:
        raise Refused("the head of the block cannot be read")
    return found.end()


def _clause(source: SourceText, above: ast.stmt, below: ast.stmt, word: str) -> int:
    """Offset of ``else`` or ``finally`` between two statements."""
    start, end = source.span(above)[1], _start(source, below)
    found = re.compile(rf"(?m)^[ \t\f]*(?={word}\b)").search(source.text, start, end)
    if found is None:
        raise Refused(f"the `{word}` around the statement cannot be found")
    return found.end()


def _drop_clause(source: SourceText, block: Block, statements: list[ast.stmt]) -> Change:
    """The change that drops an ``else`` or ``finally`` with all that is in it."""
    owner = block.owner
    if block.field == "finalbody" and not getattr(owner, "handlers", []):
        raise Refused("the `try` around the statement would be left without a clause")
    if _is_elif(source, statements):
        first = statements[0].lineno - 1
        above = owner.body[-1]  # type: ignore[attr-defined]
    else:
        clauses = [
            *owner.body,  # type: ignore[attr-defined]
            *getattr(owner, "handlers", []),
            *(owner.orelse if block.field == "finalbody" else []),  # type: ignore[attr-defined]
        ]
        above = clauses[-1]
        word = "else" if block.field == "orelse" else "finally"
        at = _clause(source, above, statements[0], word)
        first = source.text.count("\n", 0, at)
    rows = Rows(first, _end_row(statements[-1]) - 1, lowest=_end_row(above), last=True, clause=True)
    splice = _cut(source, *widened(source, rows, compound=True))
    return Change((splice,), partial(setattr, owner, block.field, []))


def _nothing_done(source: SourceText, statements: list[ast.stmt]) -> Iterator[Splice]:
    """``pass`` in the place of all statements of a block, and their comments gone."""
    start, end = source.span(statements[0])[0], source.span(statements[-1])[1]
    behind = re.compile(r"[ \t\f]*;?[ \t\f]*(#[^\n]*)?$", re.MULTILINE).match(source.text, end)
    yield Splice(start, behind.end() if behind else end, "pass")
    if not source.before(start).strip():
        rows = Rows(
            statements[0].lineno - 1, _end_row(statements[-1]) - 1, lowest=1, inner=True, last=True
        )
        above = comment_above(source, rows, rows.end)
        if above is not None:
            yield _cut(source, above, rows.first)


# -- names of an import ----------------------------------------------------------------------------


def _without_names(module: Module, statement: Import, names: set[ast.alias]) -> Change:
    """The change that takes some names out of an import, each with its comma, and with its line
    where it has one.
    """
    source, listed = module.source, list(statement.names)
    splices = []
    for number, name in enumerate(listed):
        if name not in names:
            continue
        start, end = source.span(name)
        behind = re.compile(r"[ \t\f]*,?[ \t\f]*(#[^\n]*)?\n").match(source.text, end)
        if not source.before(start).strip() and behind is not None:
            splices.append(Splice(source.line_start(start), behind.end()))
        elif all(later in names for later in listed[number:]) and number:
            splices.append(Splice(source.span(listed[number - 1])[1], end))
        elif number + 1 < len(listed):
            splices.append(Splice(start, source.span(listed[number + 1])[0]))
    return Change(
        tuple(splices),
        partial(setattr, statement, "names", [name for name in listed if name not in names]),
    )


# -- hollow ----------------------------------------------------------------------------------------
# What goes with a dropped statement: the ``if``, loop or ``with`` around it that would be left
# with nothing to do.


_IDLE_CONTEXTS = frozenset(
    {"device", "stream", "no_grad", "inference_mode", "nullcontext", "suppress", "record_function"}
)
"""Context managers without an effect beyond their block."""


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
    if isinstance(owner, ast.If):
        return _if_goes(module, owner, gone)
    if isinstance(owner, LOOPS):
        return _loop_goes(module, owner)
    if isinstance(owner, (ast.With, ast.AsyncWith)):
        if not all(map(_is_idle, owner.items)):
            raise Refused("the `with` block around the statement would be left with nothing to do")
        return True
    if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        raise Refused(
            f"`{owner.name}` would be left with nothing to do: take it out together with what uses "
            "it"
        )
    if isinstance(owner, ast.Try) or type(owner).__name__ == "TryStar":
        if not (is_empty(owner.orelse, gone) and is_empty(owner.finalbody, gone)):  # type: ignore[attr-defined]
            raise Refused("the `try` around the statement would be left with nothing to try")
        return True
    return False


def _if_goes(module: Module, owner: ast.If, gone: set[ast.stmt]) -> bool:
    if not is_empty(owner.orelse, gone):
        return False  # the condition is turned around, or `pass` says what is not done
    if writes(owner.test, asks=True) is not None:
        asked = module.source.code(owner.test).split("\n")[0]
        raise Refused(
            f"`if {asked}:` would be left with nothing to do, and its condition may do more than "
            "ask"
        )
    return True


def _loop_goes(module: Module, loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    left = "the loop around the statement would be left with nothing to do"
    if not isinstance(loop, ast.For) or loop.orelse or not _counts(loop.iter):
        raise Refused(left)
    names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    inside = set(ast.walk(loop))
    if any(
        isinstance(node, ast.Name) and node.id in names and node not in inside
        for node in module.parents
    ):
        raise Refused(left)
    return True


def _counts(iterated: ast.expr) -> bool:
    """True for ``range(...)`` and a list that is written out: going through it does nothing by
    itself.
    """
    called = (
        isinstance(iterated, ast.Call)
        and isinstance(iterated.func, ast.Name)
        and iterated.func.id == "range"
    )
    return (called or isinstance(iterated, (ast.List, ast.Tuple))) and writes(
        iterated, asks=True
    ) is None


def _is_idle(item: ast.withitem) -> bool:
    call = item.context_expr
    if (
        item.optional_vars is not None
        or not isinstance(call, ast.Call)
        or name_of(call.func) not in _IDLE_CONTEXTS
    ):
        return False
    return all(writes(part, asks=True) is None for part in _given(call))


def _given(call: ast.Call) -> Iterator[ast.AST]:
    yield from (*call.args, *call.keywords)
