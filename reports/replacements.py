"""A unified diff as replacements of whole lines, for formats that know no diffs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_NO_LINE_END = "\\ No newline at end of file"
_ESCAPED = re.compile(r'\\([0-7]{3}|["\\abtnvfr])')
_NAMED = dict(zip("abtnvfr", "\a\b\t\n\v\f\r", strict=True))


@dataclass(frozen=True)
class Replacement:
    """In ``file``, lines ``first`` to ``last`` (1-based; ``last`` is ``first - 1`` for an insertion
    before ``first``) become ``text``.

    ``cut`` is None where the last replaced line ends in a line feed, which is replaced with it;
    else that line's length.
    """

    file: str
    first: int
    last: int
    text: str
    cut: int | None = None


def replacements(diff: str) -> tuple[Replacement, ...]:
    """What the diff changes, in its order. Empty where it is no diff that can be read with
    certainty.
    """
    try:
        return tuple(_read(diff.split("\n")))
    except (ValueError, IndexError):
        return ()


def _read(lines: list[str]) -> Iterator[Replacement]:
    file, at = "", 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith("--- "):
            file, at = _path(line), at + 1
        elif hunk := _HUNK.match(line):
            if not file:
                raise ValueError("a hunk without a file")
            end = _end_of(lines, at, int(hunk[2] or 1), int(hunk[3] or 1))
            yield from _changes(file, int(hunk[1]) + (hunk[2] == "0"), lines[at:end])
            at = end
        elif line:
            raise ValueError("neither a header nor a hunk")


def _end_of(lines: list[str], at: int, old: int, new: int) -> int:
    """Where the hunk ends whose body begins at ``at``: counted, because a removed line may look
    like a header.
    """
    while old > 0 or new > 0:
        mark = lines[at][:1]
        if mark not in ("+", "-", " ", "\\"):
            raise ValueError("a hunk that ends too early")
        old -= mark in "- "
        new -= mark in "+ "
        at += 1
    return at + (lines[at] == _NO_LINE_END)


def _path(header: str) -> str:
    name = header[4:].partition("\t")[0]
    if name.startswith('"'):
        name = _ESCAPED.sub(_unescaped, name.strip('"')).encode("latin-1").decode("utf-8")
    if not name.startswith("a/"):
        raise ValueError("a path without its prefix")
    return name[2:]


def _unescaped(match: re.Match[str]) -> str:
    word = match[1]
    return chr(int(word, 8)) if len(word) == 3 else _NAMED.get(word, word)


def _changes(file: str, number: int, body: list[str]) -> Iterator[Replacement]:
    gone: list[str] = []
    come: list[str] = []
    for at, line in enumerate((*body, " ")):
        if line == _NO_LINE_END:
            continue
        bare = at + 1 < len(body) and body[at + 1] == _NO_LINE_END
        if line[:1] == "-":
            gone.append(line[1:] if bare else line[1:] + "\n")
        elif line[:1] == "+":
            come.append(line[1:] if bare else line[1:] + "\n")
        else:
            if gone or come:
                cut = len(gone[-1]) if gone and not gone[-1].endswith("\n") else None
                yield Replacement(file, number, number + len(gone) - 1, "".join(come), cut)
            number += len(gone) + 1
            gone, come = [], []
