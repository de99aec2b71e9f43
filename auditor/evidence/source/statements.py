"""Which lines of a source file are one statement, and its text cut to what fits into a message."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from auditor.evidence.source.files import lines_of
from auditor.model import Excerpt, Site
from auditor.recordings.folder import Recording
from auditor.syntax.index import index_of

LONGEST_TEXT = 60
"""Characters of source quoted in a message at most."""


class Statements:
    """Which lines of a file are one statement. ``read`` gives a file's lines as they were recorded,
    none where it was not.
    """

    def __init__(self, read: Callable[[str], Sequence[str]] = lambda _: ()) -> None:
        self._read = read
        self._files: dict[str, Mapping[int, range]] = {}

    def lines(self, site: Site) -> range:
        """Lines of the innermost statement that covers the site's, of one with a body its head
        alone; else the line itself.
        """
        known = self._files.get(site.file)
        if known is None:
            known = self._files[site.file] = _statements("\n".join(self._read(site.file)))
        return known.get(site.line, range(site.line, site.line + 1))


@lru_cache(maxsize=16)
def _statements(text: str) -> Mapping[int, range]:
    found = dict[int, range]()
    for node in index_of(text).nodes:  # outer ones come first, so the innermost stays
        if isinstance(node, ast.stmt):
            decorators = getattr(node, "decorator_list", None) or ()
            first = min([node.lineno, *(each.lineno for each in decorators)])
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else lines_of(node)[-1]
            lines = range(first, last + 1)
            found.update(dict.fromkeys(lines, lines))
    return found


CLOSES = {"(": ")", "[": "]", "{": "}"}


def shorten(text: str) -> str:
    """The text, cut for a message; of a line that goes on, what closes it is added."""
    if text[-1:] in CLOSES:
        text = f"{text}...{CLOSES[text[-1]]}"
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 3] + "..."


# -- excerpts --------------------------------------------------------------------------------------

AROUND = 4
"""Lines shown before and after the finding's own."""

NEAR = 12
"""A function that begins so few lines above is shown from its head on."""


def excerpt(recording: Recording, site: Site) -> Excerpt:
    """Around a site, from the source as it was recorded; empty where it was not."""
    lines = recording.source(site.file)
    heads = [number for number in _heads("\n".join(lines), site.line) if number <= len(lines)]
    first = max(1, site.line - AROUND)
    if heads and first - NEAR <= heads[-1] < first:
        first = heads[-1]
    opening = tuple((number, lines[number - 1]) for number in heads if number < first)
    return Excerpt(site.file, first, tuple(lines[first - 1 : site.line + AROUND]), opening)


def _heads(text: str, line: int) -> list[int]:
    return [first for first, last in _blocks(text) if first <= line <= last]


@lru_cache(maxsize=16)
def _blocks(text: str) -> tuple[tuple[int, int], ...]:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (
        (node.lineno, node.end_lineno or node.lineno)
        for node in index_of(text).nodes
        if isinstance(node, kinds)
    )
    return tuple(sorted(found, key=lambda block: (block[0], -block[1])))
