"""Manual pages (the Markdown of rule docstrings) as HTML: headings, paragraphs, bullets, code,
tables as they stand, nothing else.
"""

from __future__ import annotations

import re
import textwrap
from collections import deque
from collections.abc import Callable, Iterator

from markupsafe import Markup

from . import text

_STARTS = {
    "code": re.compile(r"\s*(```+|~~~+)"),
    "heading": re.compile(r"(#{1,6})\s+(.*?)\s*#*$"),
    "list": re.compile(r"\s*[-*+]\s+(.*)"),
    "table": re.compile(r"\s*(\|.*)"),
}
_SPAN = re.compile(r"(?P<ticks>`{1,2})(?P<code>.+?)(?P=ticks)|\*\*(?P<strong>[^*]+)\*\*")
_EMPHASIS = re.compile(r"\*([^*]+)\*")
"""A paragraph that is one stretch of emphasis: the facts below a page's title."""
_CODE = Markup("<code>{}</code>")
_STRONG = Markup("<strong>{}</strong>")
_TOP = 4
"""HTML level of a ``#`` heading: a page stands inside a finding, whose own title is an h3."""

Lines = deque[str]
Block = tuple[str, list[str]]


def to_html(markdown: str) -> Markup:
    """The page as HTML. All text is escaped; HTML inside the Markdown is shown as text."""
    return Markup("\n").join(_HTML[kind](lines) for kind, lines in blocks(text.visible(markdown)))


def blocks(markdown: str) -> Iterator[Block]:
    """The page's blocks in order: ``heading`` (marks, words), ``code``, ``table``, ``list`` (one
    line for each item), ``text``.
    """
    lines = deque(markdown.expandtabs(4).split("\n"))
    while lines:
        kind = _kind(lines[0])
        if kind == "blank":
            lines.popleft()
        else:
            yield kind, _TAKE[kind](lines)


def _kind(line: str) -> str:
    if not line.strip():
        return "blank"
    return next((kind for kind, start in _STARTS.items() if start.match(line)), "text")


def _take_code(lines: Lines) -> list[str]:
    opened = _STARTS["code"].match(lines.popleft())
    fence = opened[1] if opened else ""
    taken = []
    while lines and lines[0].strip() != fence:
        taken.append(lines.popleft())
    if lines:
        lines.popleft()
    return textwrap.dedent("\n".join(taken)).split("\n")


def _take_heading(lines: Lines) -> list[str]:
    marks, _, words = lines.popleft().partition(" ")
    return [marks, words.strip().rstrip("#").rstrip()]


def _take_list(lines: Lines) -> list[str]:
    items: list[str] = []
    while lines and (
        _kind(lines[0]) == "list" or (_kind(lines[0]) == "text" and lines[0].startswith("  "))
    ):
        bullet = _STARTS["list"].match(lines[0])
        if bullet:
            items.append(bullet[1])
        else:
            items[-1] += f" {lines[0].strip()}"
        lines.popleft()
    return items


def _take_table(lines: Lines) -> list[str]:
    return list(_while(lines, "table"))


def _take_text(lines: Lines) -> list[str]:
    return [line.strip() for line in _while(lines, "text")]


def _while(lines: Lines, kind: str) -> Iterator[str]:
    while lines and _kind(lines[0]) == kind:
        yield lines.popleft()


def _heading(lines: list[str]) -> Markup:
    marks, words = lines
    return Markup("<h{0}>{1}</h{0}>").format(min(6, _TOP - 1 + len(marks)), _inline(words))


def _preformatted(lines: list[str]) -> Markup:
    return Markup('<pre tabindex="0"><code>{}</code></pre>').format("\n".join(lines))


def _list(lines: list[str]) -> Markup:
    return Markup("<ul>{}</ul>").format(
        Markup("").join(Markup("<li>{}</li>").format(_inline(line)) for line in lines)
    )


def _paragraph(lines: list[str]) -> Markup:
    words = " ".join(lines)
    whole = _EMPHASIS.fullmatch(words)
    if whole:
        return Markup("<p><em>{}</em></p>").format(_inline(whole[1]))
    return Markup("<p>{}</p>").format(_inline(words))


def _inline(words: str) -> Markup:
    """Code and strong spans; ``_SPAN`` is linear because a code span ends at the first run of as
    many ticks.
    """
    parts, end = [], 0
    for span in _SPAN.finditer(words):
        parts.append(Markup.escape(words[end : span.start()]))
        code = span["code"]
        parts.append(_CODE.format(code.strip()) if code else _STRONG.format(span["strong"]))
        end = span.end()
    return Markup("").join((*parts, Markup.escape(words[end:])))


_TAKE: dict[str, Callable[[Lines], list[str]]] = {
    "code": _take_code,
    "heading": _take_heading,
    "list": _take_list,
    "table": _take_table,
    "text": _take_text,
}
_HTML: dict[str, Callable[[list[str]], Markup]] = {
    "code": _preformatted,
    "heading": _heading,
    "list": _list,
    "table": _preformatted,
    "text": _paragraph,
}
