"""A parsed file: finds the calls that an edit names, and changes the tree as the text."""

from __future__ import annotations

import ast
import bisect
import io
import itertools
import re
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from auditor.model import Edit
from auditor.syntax.index import above, blocks_of, name_of, parents_of, span_of

Node = TypeVar("Node", bound=ast.AST)

_QUOTED = frozenset({"JoinedStr", "TemplateStr"})


@dataclass(frozen=True)
class SourceChange:
    """One change, said twice: in text, and on the syntax tree. The patch needs both alike."""

    splices: tuple[Splice, ...]
    rewrite: Callable[[], None]


class Module:
    """Source text with its syntax tree and the parent of every node."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.tree = parse(source.raw)
        self.parents = parents_of(self.tree)

    @cached_property
    def _calls(self) -> list[ast.Call]:
        return [node for node in self.parents if isinstance(node, ast.Call)]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Parents of a node, innermost first."""
        return above(node, self.parents)

    def quoted_in(self, node: ast.AST) -> ast.AST | None:
        """The outermost f-string that holds the node.

        Before Python 3.12 positions inside an f-string are wrong, so no edit is made there, on any
        version.
        """
        return next(
            (up for up in reversed([*self.ancestors(node)]) if type(up).__name__ in _QUOTED), None
        )

    def expect_line(self, edit: Edit) -> None:
        """Raise :class:`Refused` if the site's line is not what it was in the recorded run."""
        expect_line(self.source.lines, edit)

    def on(self, line: int, *kinds: type[Node]) -> list[Node]:
        """Nodes of these kinds that cover a line."""
        return [node for node in self.parents if isinstance(node, kinds) and covers(node, line)]

    def calls(self, edit: Edit) -> list[ast.Call]:
        """The call on the edit's line; several only if written alike. Raises :class:`Refused`."""
        line = edit.site.line
        named = [call for call in self._calls if name_of(call.func) == edit.call]
        exact = [call for call in named if span_of(call) == edit.span]
        found = [(call, self.quoted_in(call) or call) for call in exact or named]
        here = [(call, place) for call, place in found if covers(place, line)]
        near = [
            (call, place)
            for call, place in here
            if line == place.lineno or (place is call and line == call.func.end_lineno)  # type: ignore[attr-defined]
        ]
        if not here:
            raise Refused(f"there is no call of `{edit.call}` on line {line}")
        if any(place is not call for call, place in near or here):
            raise Refused(f"the call of `{edit.call}` on line {line} stands inside an f-string")
        return only_alike(
            [call for call, _ in near or here], f"line {line} calls `{edit.call}` more than once"
        )

    def replace(self, old: ast.expr, new: ast.expr) -> None:
        """Put ``new`` where ``old`` is in the tree; ``new`` may hold ``old``."""
        parent = self.parents[old]
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list):
                value[:] = [new if item is old else item for item in value]


def expect_line(lines: Sequence[str], edit: Edit) -> None:
    """Raise :class:`Refused` if an edit's line is not what it was in the recorded run."""
    site = edit.site
    if not 0 < site.line <= len(lines):
        raise Refused(f"the file has no line {site.line}")
    # Compared without spacing: a recorded line has its form feeds as spaces.
    if site.text and lines[site.line - 1].split() != site.text.split():
        raise Refused(f"line {site.line} is not what it was when the run was recorded")


def covers(node: ast.AST, line: int) -> bool:
    """True if the node's lines include ``line``."""
    return bool(node.lineno <= line <= node.end_lineno)  # type: ignore[attr-defined]


def only_alike(nodes: Sequence[Node], otherwise: str) -> list[Node]:
    """All nodes if they are the same syntax, as one edit means all; else :class:`Refused`."""
    if not all(same(nodes[0], node) for node in nodes[1:]):
        raise Refused(f"{otherwise}, so which one is meant is not known")
    return list(nodes)


def same(left: object, right: object) -> bool:
    """True if two trees are the same syntax. Does not recurse: real files nest deeply."""
    pending = [(left, right)]
    while pending:
        one, other = pending.pop()
        if type(one) is not type(other):
            return False
        if isinstance(one, ast.AST):
            pending += [
                (getattr(one, name, None), getattr(other, name, None)) for name in one._fields
            ]
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            pending += zip(one, other, strict=True)
        elif one != other:
            return False
    return True


def called_statements(module: Module, edit: Edit) -> list[ast.stmt]:
    """The statements that only make the call which the edit names. Raises :class:`Refused`."""
    found: list[ast.stmt] = []
    for call in module.calls(edit):
        parent = module.parents[call]
        if isinstance(parent, ast.Await):
            parent = module.parents[parent]
        if isinstance(parent, ast.withitem):
            raise Refused(f"`{edit.call}` opens a with block, whose body would have to be indented")
        if not isinstance(parent, ast.Expr):
            raise Refused(f"the value of `{edit.call}` is used on line {edit.site.line}")
        found.append(parent)
    return found


def block_of(module: Module, statement: ast.stmt) -> list[ast.stmt]:
    """The block that a statement stands in, as it is in the tree."""
    return next(block for block in blocks_of(module.parents[statement]) if statement in block)


# -- source ----------------------------------------------------------------------------------------
# A user's file as exact text: decoded as Python decodes it, spliced by offset, encoded back without
# touching another byte.


class Refused(Exception):
    """The edit is not made; the message is one plain sentence why."""


@dataclass(frozen=True, order=True)
class Splice:
    r"""Replace ``text[start:end]`` of a :class:`SourceText` by ``text``; line ends are ``\n``."""

    start: int
    end: int
    text: str = ""


@dataclass(frozen=True)
class SourceText:
    r"""Python source as characters. All offsets count characters of ``text``, in which every line
    end is ``\n``.
    """

    raw: bytes
    encoding: str
    text: str
    endings: tuple[str, ...]
    r"""What really ends each line but the last: ``\n``, ``\r\n`` or ``\r``."""

    @classmethod
    def from_bytes(cls, raw: bytes) -> SourceText:
        """Decode by byte order mark or coding line. Raises :class:`Refused` if bytes change."""
        encoding = detect_encoding(raw)
        try:
            decoded = raw.decode(encoding)
            faithful = decoded.encode(encoding) == raw
        except (UnicodeError, LookupError):
            raise Refused(f"the file is not valid {encoding}") from None
        if not faithful:
            raise Refused(f"the file's encoding {encoding} cannot be written back byte for byte")
        return cls(
            raw, encoding, unify_line_ends(decoded), tuple(re.findall(r"\r\n|\r|\n", decoded))
        )

    @cached_property
    def lines(self) -> list[str]:
        r"""Lines without their ends. Only ``\n``, ``\r\n`` and ``\r`` end a line, as in Python."""
        return self.text.split("\n")

    @cached_property
    def _starts(self) -> list[int]:
        return list(itertools.accumulate((len(line) + 1 for line in self.lines[:-1]), initial=0))

    @cached_property
    def _decoded_starts(self) -> list[int]:
        widths = (len(line) + len(end) for line, end in zip(self.lines, self.endings, strict=False))
        return list(itertools.accumulate(widths, initial=0))

    def _row(self, offset: int) -> int:
        return bisect.bisect_right(self._starts, offset) - 1

    def offset(self, line: int, column: int) -> int:
        """Offset of an ``ast`` position: ``line`` from 1, ``column`` in UTF-8 bytes."""
        text = self.lines[line - 1]
        return self._starts[line - 1] + (
            column if text.isascii() else len(text.encode()[:column].decode())
        )

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Start and end offset of a syntax node, without enclosing parentheses."""
        start = self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        return start, self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def code(self, node: ast.AST) -> str:
        """Source text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def line_start(self, offset: int) -> int:
        """Offset of the first character of the line that ``offset`` is on."""
        return self._starts[self._row(offset)]

    def line_end(self, offset: int) -> int:
        """Offset of the end of that line, before its line end."""
        row = self._row(offset)
        return self._starts[row] + len(self.lines[row])

    def before(self, offset: int) -> str:
        """What stands on the line in front of ``offset``."""
        return self.text[self.line_start(offset) : offset]

    def rest_is_idle(self, offset: int) -> bool:
        """True if nothing but a comment follows on the line. ``offset`` is not inside a string."""
        rest = self.text[offset : self.line_end(offset)].strip()
        return not rest or rest.startswith("#")

    def is_joined(self, offset: int) -> bool:
        """True if a backslash joins the line to the one above."""
        return self.text.endswith("\\\n", 0, self.line_start(offset))

    def expect_own_lines(self, start: int, end: int) -> None:
        """Raise :class:`Refused` unless a statement stands alone on its lines."""
        if self.before(start).strip() or not self.rest_is_idle(end):
            raise Refused("the statement shares its line with another")
        if self.is_joined(start):
            raise Refused("the statement is joined to the line above by a backslash")

    def splice(self, splices: Iterable[Splice]) -> bytes:
        """The file with the splices, which must not overlap. New lines end as their line does."""
        decoded = self._decoded
        pieces, done = [], 0
        for splice in sorted(splices):
            start, end = self._decoded_offset(splice.start), self._decoded_offset(splice.end)
            row = min(self._row(splice.start), len(self.endings) - 1)
            pieces += [
                decoded[done:start],
                splice.text.replace("\n", self.endings[row] if row >= 0 else "\n"),
            ]
            done = end
        try:
            return "".join([*pieces, decoded[done:]]).encode(self.encoding)
        except UnicodeEncodeError:
            raise Refused(
                f"the new text cannot be written in the file's encoding {self.encoding}"
            ) from None

    @cached_property
    def _decoded(self) -> str:
        return self.raw.decode(self.encoding)

    def _decoded_offset(self, offset: int) -> int:
        row = self._row(offset)
        return self._decoded_starts[row] + offset - self._starts[row]


def detect_encoding(raw: bytes) -> str:
    """Encoding by byte order mark, coding line, or UTF-8. Raises :class:`Refused` if unknown."""
    # detect_encoding reads lines ended by \n only; Python itself takes a lone \r too.
    head = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        return tokenize.detect_encoding(io.BytesIO(head).readline)[0]
    except SyntaxError:
        raise Refused("the file's encoding is not known") from None


def unify_line_ends(text: str) -> str:
    r"""Every line end as ``\n``."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse(raw: bytes) -> ast.Module:
    """Syntax tree of a file's bytes, as imports read them. Raises :class:`Refused`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a user's invalid escape must neither print nor raise
        try:
            return ast.parse(raw)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Refused(f"the file does not parse ({error})") from None


def parse_expression(code: str) -> ast.expr:
    """Syntax tree of one expression. Raises :class:`Refused`."""
    try:
        return ast.parse(code.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Refused(f"`{code}` is not an expression") from None
