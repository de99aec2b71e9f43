"""Text of a trace cut into pieces that hold whole events, at constant memory.

Kineto has put the same bytes between two events since 2021, so the fast cutter only looks for them.
A file that went through another JSON writer is cut at any ``},{`` after which the piece so far
decodes as a list (a wrong cut never does). What decodes nowhere is scanned event by event.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from auditor.errors import AuditProblem
from auditor.timeline.inflating import Inflating


class Boundary(NamedTuple):
    """What a writer puts between two events: the end of one, a comma, the begin of the next."""

    closing: bytes
    opening: bytes

    @property
    def text(self) -> bytes:
        """The whole of it."""
        return self.closing + b"," + self.opening


BOUNDARIES = (
    Boundary(b"\n  }", b"\n  {"),  # Kineto since 2021
    Boundary(b"}", b'\n{"ph":'),  # torch 2.13's export in Python, one event a line
)
HEAD_LIMIT = 64 << 20
"""Bytes before the first event (device and process-group tables) that are looked through at
most.
"""
EVENT_LIMIT = 16 << 20
"""Bytes of one event that are kept at most."""
LOOK = 1 << 20
"""Bytes without a known boundary after which the layout counts as another writer's."""
TRIES = 8
"""``},{`` places from the end of a chunk that are tried as cuts before more text is read (each try
decodes the piece).
"""

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_CLOSE = re.compile(rb"\}\s*\]")
_RAW = msgspec.json.Decoder(list[msgspec.Raw])

Piece = bytes | list[dict[str, Any]]
"""JSON list of events as text, or events that had to be decoded on the way."""


class Pieces:
    """Iterates over :data:`Piece`. ``head``, ``tail`` and ``complete`` are final once the iteration
    has ended.
    """

    def __init__(self, chunks: Inflating) -> None:
        self.head = b""
        self.tail = b""
        self.salvage = Salvage()
        self.complete = False
        """Whether the list of events was closed."""
        self._source = chunks
        self._chunks = iter(chunks)

    def __iter__(self) -> Iterator[Piece]:
        rest = self._first_event()
        while (
            (boundary := _boundary_in(rest)) is None
            and len(rest) < LOOK
            and (more := next(self._chunks, b""))
        ):
            rest += more
        yield from self._known(rest, boundary) if boundary else self._other(rest)

    def _first_event(self) -> bytes:
        """Text behind the ``[`` of the events; raises where there is none."""
        start = b""
        while not start and (more := next(self._chunks, b"")):
            start = more.lstrip(b"\xef\xbb\xbf \t\r\n")
        if start[:1] == b"[":
            return start[1:]
        parts, size, window = [start], len(start), start
        while start[:1] == b"{":
            if found := _EVENTS.search(window):
                behind = len(window) - found.end()
                text = b"".join(parts)
                self.head = text[: len(text) - behind - len(found[0])]
                return text[len(text) - behind :]
            if size > HEAD_LIMIT or not (more := next(self._chunks, b"")):
                break
            parts.append(more)
            size += len(more)
            window = window[-64:] + more  # the key may lie across two chunks
        raise self._not_a_trace(start)

    def _not_a_trace(self, start: bytes) -> AuditProblem:
        path = self._source.path
        if not start:
            damage = f": {self._source.warnings[0]}" if self._source.warnings else ""
            return AuditProblem(
                f"{path} holds no text{damage}",
                "record the trace again, or copy it again in binary mode",
            )
        if start[:1] == b"<":
            return AuditProblem(
                f"{path} is a web page, not a trace", "download the raw file behind that page"
            )
        if start[:1] == b"{":
            return AuditProblem(
                f'{path} holds no "traceEvents"',
                "export it with torch.profiler's export_chrome_trace()",
            )
        return AuditProblem(
            f"{path} is not JSON", "a trace is the .json or .json.gz that torch.profiler wrote"
        )

    def _known(self, rest: bytes, boundary: Boundary) -> Iterator[Piece]:
        parts = [b"", rest]
        size = len(rest)
        between, closing = boundary.text, len(boundary.closing)
        while True:
            last = parts[-1]
            # one that lies across two chunks is not seen, and stays inside a piece
            cut = last.rfind(between)
            if cut >= 0:
                piece = b"".join((b"[", *parts[:-1], memoryview(last)[: cut + closing], b"]"))
                parts = [last[cut + closing + 1 :]]
                size = len(parts[0])
                yield piece
                # found by who decoded the piece: what follows are more keys of the file
                if self.salvage.closed:
                    break
            elif size > EVENT_LIMIT:
                yield from self._other(b"".join(parts))
                return
            if not (more := next(self._chunks, b"")):
                break
            parts.append(more)
            size += len(more)
        yield from self._last(b"".join(parts))

    def _other(self, rest: bytes) -> Iterator[Piece]:
        # where nothing could be cut, twice as much text is read before the next try: else time
        # grows with its square
        again = 0
        while more := next(self._chunks, b""):
            rest += more
            if len(rest) < again:
                continue
            again = 2 * len(rest)
            if cut := self._cut(rest):
                yield b"[" + rest[: cut - 1].rstrip().rstrip(b",") + b"]"
                rest, again = rest[cut - 1 :], 0
            elif len(rest) > 2 * LOOK:
                events, used = self.salvage.scan(rest, final=False, limit=EVENT_LIMIT)
                yield events
                rest, again = rest[used:], 0 if used else again
                if self.salvage.closed:
                    break
        yield from self._last(rest)

    def _cut(self, rest: bytes) -> int:
        """Offset just behind the ``{`` of an event before which everything is whole; 0 if none was
        found.
        """
        places = [found.end() for found in CANDIDATE.finditer(rest, max(0, len(rest) - LOOK))]
        for place in reversed(places[-TRIES:]):
            if _is_list(b"[" + rest[: place - 1].rstrip().rstrip(b",") + b"]"):
                return place
        return 0

    def _last(self, rest: bytes) -> Iterator[Piece]:
        """The last piece: its list is closed by ``]`` and followed by more keys, or cut off."""
        if self.salvage.closed:
            self.tail = self.salvage.after + rest
        elif end := _closing(rest):
            yield b"[" + rest[:end]
            self.complete = True
            self.tail = rest[end:]
        else:
            events, used = self.salvage.scan(rest, final=True, limit=EVENT_LIMIT)
            yield events
            self.tail = rest[used:]
        self.tail += b"".join(self._rest_of_tail())

    def _rest_of_tail(self) -> Iterator[bytes]:
        size = len(self.tail)
        for chunk in self._chunks:
            size += len(chunk)
            if size > HEAD_LIMIT:
                return
            yield chunk


def split(inside: bytes) -> list[bytes]:
    """The events of a text, cut where the writer put its boundaries; one text where it put none."""
    boundary = _boundary_in(inside)
    if boundary is None:
        return [inside]
    texts = inside.split(boundary.text)
    last = len(texts) - 1
    return [
        (boundary.opening if place else b"") + part + (boundary.closing if place < last else b"")
        for place, part in enumerate(texts)
    ]


def _boundary_in(text: bytes) -> Boundary | None:
    return next((boundary for boundary in BOUNDARIES if boundary.text in text), None)


def _closing(rest: bytes) -> int:
    """Offset behind the ``]`` that closes the events; 0 if no such place makes a list."""
    for close in itertools.islice(_CLOSE.finditer(rest), TRIES):
        if _is_list(b"[" + rest[: close.end()]):
            return close.end()
    return 0


def _is_list(text: bytes) -> bool:
    try:
        _RAW.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


# -- salvage ---------------------------------------------------------------------------------------
# Events out of text that is not JSON as a whole: a quote left unescaped, a cut in the middle, NaN,
# a comma too many.


CANDIDATE = re.compile(rb"\}\s*,\s*\{")
"""Where one event may end and the next begin."""

_NEXT = re.compile(r"\}\s*,\s*(?=\{)")
_FILL = re.compile(r"[\s,]*")
_KEYS = "ph|cat|name|pid|tid|ts|dur|id|args|s|bp"
_TEXT_FIELD = re.compile(
    rf'("(?:name|cat)"\s*:\s*")(.*?)(?="\s*(?:,\s*"(?:{_KEYS})"\s*:|\}}\s*\Z))', re.DOTALL
)
# takes NaN, Infinity and control characters, as some writers leave them
_DECODER = json.JSONDecoder(strict=False)
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
