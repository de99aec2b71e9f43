"""Unified diffs that ``git apply`` and ``patch -p1`` accept, byte for byte."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection

_CONTEXT = 3
_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+", re.MULTILINE)
_NO_NEWLINE = b"\n\\ No newline at end of file\n"
_ESCAPES = {
    7: "\\a",
    8: "\\b",
    9: "\\t",
    10: "\\n",
    11: "\\v",
    12: "\\f",
    13: "\\r",
    34: '\\"',
    92: "\\\\",
}


def diff_bytes(before: bytes, after: bytes, path: str) -> bytes:
    """Diff of one file with headers ``a/path`` and ``b/path``; empty if nothing changed.

    There is no ``diff --git`` line: with one, git reads paths from the top of the repository
    instead of from the working directory, and silently skips the file when it is run in a folder
    below. Where a path starts with the name of that very folder (``project/step.py`` applied in
    ``repo/project``), git guesses wrong and needs ``git apply -p1``.
    """
    old, new = _lines(before), _lines(after)
    # Latin-1 maps each byte to one character and back, so difflib may compare any bytes.
    body = list(difflib.unified_diff(old, new, n=_CONTEXT))[2:]
    if not body:
        return b""
    hunks = (
        line.encode("latin-1") if line.endswith("\n") else line.encode("latin-1") + _NO_NEWLINE
        for line in body
    )
    return b"".join([_header("---", f"a/{path}"), _header("+++", f"b/{path}"), *hunks])


def shows_line(diff: bytes, lines: Collection[int]) -> bool:
    """True if a hunk of one file's diff shows one of these lines (from 1) of the file before."""
    hunks = ((int(found[1]), int(found[2] or 1)) for found in _HUNK.finditer(diff))
    return any(first <= line < first + count for first, count in hunks for line in lines)


def _lines(raw: bytes) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", raw.decode("latin-1"))


def _header(mark: str, path: str) -> bytes:
    # As git writes it: a tab ends a name with spaces, so that no reader takes its tail for a date.
    return f"{mark} {quote_path(path)}{'	' if ' ' in path else ''}\n".encode("ascii")


def quote_path(path: str) -> str:
    """A path as git prints it: in C quotes with octal bytes unless it is printable ASCII."""
    raw = os.fsencode(path)
    text = "".join(
        _ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in raw
    )
    return f'"{text}"' if text != path else path
