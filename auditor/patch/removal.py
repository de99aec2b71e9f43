"""Drops statements so that what stays reads as if it had been written so.

With a statement go the ``if`` that only did it, the comment that described it, a blank line too
many, and imports that nothing reads any more. What nothing read before stays.
"""

from __future__ import annotations

import ast
import itertools
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from auditor.patch.effects import writes
from auditor.patch.module import Block, Change, Module, block_of
from auditor.patch.source import Refused, SourceText, Splice

_BY_NAME = frozenset({"eval", "exec", "globals", "locals", "vars"})
"""Functions that read variables which the source does not show."""

_NEVER_LEANED_ON = frozenset({"torch", *sys.stdlib_module_names})
"""Modules whose import has no effect that a trainer leans on."""


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
    gone = set(doomed)
    close(module, gone)
    if not keep_imports:
        gone |= set(_unread_imports(module, gone, splices))
    outermost = [each for each in gone if not any(up in gone for up in module.ancestors(each))]
    blocks: dict[Block, set[ast.stmt]] = {}
    for statement in outermost:
        blocks.setdefault(block_of(module, statement), set()).add(statement)
    for block, lost in blocks.items():
        yield _dropped(module.source, block, lost)


# -- one block -------------------------------------------------------------------------------------


def _dropped(source: SourceText, block: Block, lost: set[ast.stmt]) -> Change:
    statements = list(block.statements)
    if isinstance(block.owner, ast.Module) or len(lost) < len(statements):
        splices = tuple(_drop_some(source, block, lost))
    else:
        splices = tuple(_nothing_done(source, statements))
    return Change(splices, partial(_take_out, block, lost))


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
    """Where a statement starts, its decorators included."""
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
    rows = Rows(
        statements[first].lineno - 1,
        _end_row(statements[last]) - 1,
        lowest=_end_row(statements[first - 1]) if first else _head_row(statements[0], block.owner),
        first_of_block=not first,
        last_of_block=last + 1 == len(statements),
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


def _nothing_done(source: SourceText, statements: list[ast.stmt]) -> Iterator[Splice]:
    """``pass`` in the place of all statements of a block, and their comments gone."""
    start, end = source.span(statements[0])[0], source.span(statements[-1])[1]
    behind = re.compile(r"[ \t\f]*;?[ \t\f]*(#[^\n]*)?$", re.MULTILINE).match(source.text, end)
    yield Splice(start, behind.end() if behind else end, "pass")
    if not source.before(start).strip():
        rows = Rows(statements[0].lineno - 1, _end_row(statements[-1]) - 1, lowest=1)
        above = comment_above(source, rows, rows.end)
        if above is not None:
            yield _cut(source, above, rows.first)


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


# -- imports ---------------------------------------------------------------------------------------


def is_package(file: str) -> bool:
    """True of an ``__init__.py``: what it imports, others import from it."""
    return posixpath.basename(file.replace("\\", "/")) == "__init__.py"


def _unread_imports(
    module: Module, gone: set[ast.stmt], splices: Sequence[Splice]
) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports all of whose names were read, and only by what goes or is written anew."""
    cuts = [(splice.start, splice.end) for splice in splices if splice.end > splice.start]
    written = {
        word for splice in splices for word in re.findall(r"(?<![.\w])[^\W\d]\w*", splice.text)
    }

    def goes(node: ast.AST) -> bool:
        start, end = module.source.span(node)
        return any(first <= start and end <= last for first, last in cuts) or any(
            up in gone for up in module.ancestors(node)
        )

    mentions: dict[str, list[ast.AST]] = {}
    for node in module.parents:
        for name in _mentioned(node):
            mentions.setdefault(name, []).append(node)
    if not _BY_NAME.isdisjoint(mentions):
        return
    for statement in module.parents:
        if isinstance(statement, ast.Import | ast.ImportFrom) and _may_go(module, statement, gone):
            names = [item.asname or item.name.partition(".")[0] for item in statement.names]
            read = [
                [node for node in mentions[name] if node not in statement.names] for name in names
            ]
            if written.isdisjoint(names) and all(each and all(map(goes, each)) for each in read):
                yield statement


def _mentioned(node: ast.AST) -> Iterator[str]:
    """Names that a node reads or binds, or that a string may stand for: in ``__all__``, for
    ``getattr``, in annotations.
    """
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from re.findall(r"[^\W\d]\w*", node.value)
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names
    elif not isinstance(node, ast.keyword):
        bound = (getattr(node, each, None) for each in ("arg", "name", "rest"))
        yield from (name for name in bound if isinstance(name, str))


def _may_go(module: Module, statement: ast.Import | ast.ImportFrom, gone: set[ast.stmt]) -> bool:
    owner = module.parents[statement]
    if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef):
        if is_empty([each for each in owner.body if each is not statement], gone):
            return False
    elif not isinstance(owner, ast.Module):
        return False  # under a condition, or tried: what else hangs on it is not known
    start, end = module.source.span(statement)
    alone = not module.source.before(start).strip() and module.source.rest_is_idle(end)
    rows = module.source.lines[statement.lineno - 1 : statement.end_lineno]
    if not alone or any("noqa" in row for row in rows):
        return False
    if isinstance(statement, ast.ImportFrom):
        homes = [] if statement.level else [str(statement.module)]
        return statement.module != "__future__" and _are_plain(homes)
    return _are_plain([item.name for item in statement.names])


def _are_plain(modules: list[str]) -> bool:
    return bool(modules) and all(module.partition(".")[0] in _NEVER_LEANED_ON for module in modules)


# -- what stands around a dropped statement --------------------------------------------------------


_OF_TOOLS = re.compile(
    r"#\s*(type:|noqa|fmt:|yapf|isort|pylint|pragma|mypy|audit:|%%|region|endregion|!|-\*-|SPDX|Copyright|[-=#*~]{3,})",
    re.IGNORECASE,
)
"""Comments that a tool reads, or that divide a file: they describe no statement."""

_COMMON = frozenset("torch cuda self this that with then from each every step will here".split())


@dataclass(frozen=True)
class Rows:
    """Whole lines (from 0, the last included) that statements stand on, and where they stand.

    ``lowest`` is the first line that may belong to them: what is above is another statement, or the
    head of their block.
    """

    first: int
    end: int
    lowest: int
    first_of_block: bool = False
    last_of_block: bool = False


def widened(source: SourceText, rows: Rows, *, compound: bool) -> tuple[int, int]:
    """First line, and the first one behind, of all that goes with the rows. ``compound``: they end
    in a statement with a block.
    """
    lines = source.lines
    end = _with_deeper_comments(lines, rows) if compound else rows.end
    above = comment_above(source, rows, end)
    first = rows.first if above is None else above
    before = _blank_rows(lines, range(first - 1, rows.lowest - 1, -1))
    behind = _blank_rows(lines, range(end + 1, len(lines) - (lines[-1] == "")))
    if rows.last_of_block and not _comment_follows(lines, end + behind, lines[rows.first]):
        return first - before, end + 1
    cut = behind if rows.first_of_block and not before else min(before, behind)
    return first, end + 1 + cut


def comment_above(source: SourceText, rows: Rows, end: int) -> int | None:
    """The first line of the comment right above that described only these rows; None if there is
    none.
    """
    lines = source.lines
    indent = _indent(lines[rows.first])
    first = rows.first
    while (
        first > rows.lowest
        and lines[first - 1].lstrip().startswith("#")
        and _indent(lines[first - 1]) == indent
    ):
        first -= 1
    block = lines[first : rows.first]
    if not block or any(_OF_TOOLS.match(line.strip()) for line in block) or _is_code(block):
        return None
    following = lines[end + 1] if end + 1 < len(lines) else ""
    if not following.strip() or following.lstrip().startswith("#") or _indent(following) != indent:
        return first
    said, gone = _words(" ".join(block)), _words("\n".join(lines[rows.first : end + 1]))
    return first if said & gone and not said & _words(following) else None


def _with_deeper_comments(lines: list[str], rows: Rows) -> int:
    """A block's last comments stand behind its last statement."""
    end, indent = rows.end, len(_indent(lines[rows.first]).expandtabs())
    for row in range(rows.end + 1, len(lines)):
        text = lines[row].strip()
        deeper = len(_indent(lines[row]).expandtabs()) > indent
        if text and not (text.startswith("#") and deeper):
            break
        if text:
            end = row
    return end


def _blank_rows(lines: list[str], rows: range) -> int:
    count = 0
    for row in rows:
        if lines[row].strip():
            break
        count += 1
    return count


def _comment_follows(lines: list[str], row: int, like: str) -> bool:
    """True if behind the row stands a comment of the same block."""
    following = lines[row + 1] if row + 1 < len(lines) else ""
    return following.lstrip().startswith("#") and _indent(following) == _indent(like)


def _is_code(block: list[str]) -> bool:
    """True for statements that are commented out: they describe nothing."""
    text = "\n".join(line.strip().lstrip("#").removeprefix(" ") for line in block)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, (ast.Call, ast.Assign, ast.AugAssign)) for node in ast.walk(tree))


def _words(text: str) -> frozenset[str]:
    """Beginnings of the words of a text, identifiers taken apart: ``cached`` and ``empty_cache``
    share one.
    """
    found = (word.lower() for word in re.findall(r"[A-Za-z][a-z]+|[A-Z]{2,}", text))
    return frozenset(word[:4] for word in found if len(word) >= 4 and word not in _COMMON)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
