"""Lines of source and of patches as the HTML page shows them: cut, numbered, marked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from auditor.model import Excerpt, Finding

from . import text

LINE_LIMIT = 400
"""Characters of a source or diff line that are shown."""

OPENING_LINES = 8
"""Heads of functions and classes around an excerpt that are shown."""

DIFF_LINES = 400
"""Lines of one diff that are shown; fixes.patch has them all."""


@dataclass(frozen=True)
class CodeLine:
    """One line of an excerpt or a diff. ``kind`` is a class of the style sheet."""

    kind: Literal["plain", "marked", "opening", "add", "remove", "hunk", "file"]
    number: int | None
    text: str


def excerpt_lines(excerpt: Excerpt | None, finding: Finding) -> Iterator[CodeLine]:
    """The source around a finding, its own lines marked; the line alone where nothing around it is
    known.
    """
    site = finding.site
    if site is None:
        return
    if excerpt is None or not excerpt.lines:
        if site.text:
            yield CodeLine("marked", site.line, text.one_line(site.text, LINE_LIMIT))
        return
    margin = _margin(excerpt)
    marked = {site.line, *(place.site.line for place in finding.places)}
    for number, line in excerpt.opening[:OPENING_LINES]:
        yield CodeLine("opening", number, text.one_line(line[margin:], LINE_LIMIT))
    for number, line in enumerate(excerpt.lines, excerpt.first):
        yield CodeLine(
            "marked" if number in marked else "plain",
            number,
            text.one_line(line[margin:], LINE_LIMIT),
        )


def _margin(excerpt: Excerpt) -> int:
    """Spaces that all lines begin with: deep code would stand outside a phone's screen."""
    written = [
        line for line in (*(line for _, line in excerpt.opening), *excerpt.lines) if line.strip()
    ]
    return min((len(line) - len(line.lstrip(" ")) for line in written), default=0)


def diff_lines(diff: str) -> Iterator[CodeLine]:
    """The lines of a patch, the first :data:`DIFF_LINES` of them."""
    lines = diff.rstrip("\n").split("\n") if diff else []
    for line in lines[:DIFF_LINES]:
        yield CodeLine(_diff_kind(line), None, text.one_line(line, LINE_LIMIT))
    if len(lines) > DIFF_LINES:
        yield CodeLine("hunk", None, f"[{len(lines) - DIFF_LINES} more lines: see fixes.patch]")


def _diff_kind(line: str) -> Literal["add", "remove", "hunk", "file", "plain"]:
    if line.startswith(("--- ", "+++ ", "diff ")):
        return "file"
    if line.startswith("@@"):
        return "hunk"
    return "add" if line.startswith("+") else "remove" if line.startswith("-") else "plain"
