"""Events out of text that is not JSON as a whole: a quote left unescaped, a cut in the middle, NaN,
a comma too many.
"""

from __future__ import annotations

import json
import re
from typing import Any

CANDIDATE = re.compile(rb"\}\s*,\s*\{")
"""Where one event may end and the next begin."""

_NEXT = re.compile(r"\}\s*,\s*(?=\{)")
_FILL = re.compile(r"[\s,]*")
_KEYS = "ph|cat|name|pid|tid|ts|dur|id|args|s|bp"
_TEXT_FIELD = re.compile(
    rf'("(?:name|cat)"\s*:\s*")(.*?)(?="\s*(?:,\s*"(?:{_KEYS})"\s*:|\}}\s*\Z))', re.DOTALL
)
_DECODER = json.JSONDecoder(
    strict=False
)  # takes NaN, Infinity and control characters, as some writers leave them
NAME_LIMIT = 1 << 16
"""Characters of an event in which quotes are mended; longer ones are dropped."""


class Salvage:
    """Decodes what can be decoded and counts the rest."""

    def __init__(self) -> None:
        self.mended = 0
        self.dropped = 0
        self.closed = False
        self.cut_off = False
        self.after = b""
        """Text behind the end of the events, where :meth:`each` found it."""

    def scan(self, raw: bytes, *, final: bool, limit: int) -> tuple[list[dict[str, Any]], int]:
        """Events of a text that begins at an event or between two, and how many bytes of it were
        used.

        An event without an end is left for the next call, unless the text is ``final`` or longer
        than ``limit``. Sets ``closed`` when the list of events ended.
        """
        text = raw.decode("utf-8", "surrogateescape")
        events: list[dict[str, Any]] = []
        at = 0
        while True:
            at = self._skip(text, at)
            if at >= len(text) or self.closed:
                break
            value, end = _decode(text, at)
            if end < 0:
                following = _NEXT.search(text, at)
                if following is None and not final and len(text) - at < limit:
                    break
                value, end = self._mend(text, at, following, final=final)
            if isinstance(value, dict):
                events.append(value)
            at = end
        return events, len(text[:at].encode("utf-8", "surrogateescape"))

    def each(self, texts: list[bytes]) -> list[dict[str, Any]]:
        """Events of texts that hold one each; what cannot be read is counted.

        A text that goes on behind the ``]`` of the events sets ``closed``, and the rest goes to
        ``after``.
        """
        events = []
        for number, raw in enumerate(texts):
            text = raw.decode("utf-8", "surrogateescape").lstrip()
            value, end = _decode(text, 0)
            if end < 0:
                value, end = self._mend(text, 0, None, final=False)
            elif not isinstance(value, dict):
                self.dropped += 1
            if isinstance(value, dict):
                events.append(value)
            self._skip(text, end)
            if self.closed:
                rest = text[end:].partition("]")[2].encode("utf-8", "surrogateescape")
                self.after = b",".join((rest, *texts[number + 1 :]))
                break
        return events

    def _skip(self, text: str, at: int) -> int:
        found = _FILL.match(text, at)
        at = found.end() if found else at
        if text[at : at + 1] == "]":
            self.closed = True
            return at + 1
        return at

    def _mend(
        self, text: str, at: int, following: re.Match[str] | None, *, final: bool
    ) -> tuple[Any, int]:
        """The event at ``at`` with the quotes in its names escaped, or None; and where to go on."""
        stop = following.start() + 1 if following else len(text)
        end = following.end() if following else len(text)
        if stop - at <= NAME_LIMIT:
            value, used = _decode(_TEXT_FIELD.sub(_escaped, text[at:stop]), 0)
            if used >= 0 and isinstance(value, dict):
                self.mended += 1
                return value, end
        if final and following is None:
            self.cut_off = True
        else:
            self.dropped += 1
        return None, end


def _decode(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, -1


def _escaped(found: re.Match[str]) -> str:
    return found[1] + re.sub(r'(?<!\\)"', r'\\"', found[2])
