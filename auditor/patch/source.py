"""A user's file as exact text: decoded as Python decodes it, spliced by offset, encoded back
without touching another byte.
"""

from __future__ import annotations

import ast
import bisect
import io
import itertools
import re
import tokenize
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property


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
        """Decode by byte order mark or coding line. Raises :class:`Refused` when the bytes would
        not come back the same.
        """
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
    """Encoding by byte order mark, coding line, or UTF-8. Raises :class:`Refused` for one that
    Python does not know.
    """
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
