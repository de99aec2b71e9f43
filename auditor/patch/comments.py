"""Which lines around a dropped statement go with it: the comment that described it, and a blank
line too many.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from auditor.patch.source import SourceText

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
    head of their block. ``inner``: the head of a block is above them, not another statement;
    ``last``: no statement of their block follows.
    """

    first: int
    end: int
    lowest: int
    inner: bool = False
    last: bool = False
    top: bool = False
    """They stand in no block of another statement."""
    clause: bool = False
    """They begin with an ``else`` or its like: what stands above belongs to no other statement."""


def widened(source: SourceText, rows: Rows, *, compound: bool) -> tuple[int, int]:
    """First line, and the first one behind, of all that goes with the rows. ``compound``: they end
    in a statement with a block.
    """
    lines = source.lines
    end = _with_deeper_comments(lines, rows) if compound else rows.end
    first = rows.first
    above = comment_above(source, rows, end)
    if above is not None:
        first = above
    before = _blank_rows(lines, range(first - 1, rows.lowest - 1, -1))
    behind = _blank_rows(lines, range(end + 1, len(lines) - (lines[-1] == "")))
    closes = rows.last and not _comment_follows(lines, end + behind, lines[rows.first])
    surplus = (
        before
        + behind
        - _kept(before, behind, rows, first=first - before <= rows.lowest, closes=closes)
    )
    cut_behind = min(behind, surplus)
    return first - (surplus - cut_behind), end + 1 + cut_behind


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
    if (
        rows.clause
        or not following.strip()
        or following.lstrip().startswith("#")
        or _indent(following) != indent
    ):
        return first
    said, gone = _words(" ".join(block)), _words("\n".join(lines[rows.first : end + 1]))
    return first if said & gone and not said & _words(following) else None


def _kept(before: int, behind: int, rows: Rows, *, first: bool, closes: bool) -> int:
    """Blank lines that stay between what is above and what is below."""
    if closes:
        return 0 if rows.top else behind
    if first and rows.lowest == 0:
        return 0  # at the top of the file
    return before if first and rows.inner else max(before, behind)


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
