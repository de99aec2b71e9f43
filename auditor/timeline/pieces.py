"""Text of a trace cut into pieces that hold whole events, at constant memory.

A writer puts the same bytes between two events throughout a file. They are learnt from its first
two events, and the text is cut where they stand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from auditor.errors import AuditProblem
from auditor.timeline.inflating import AGAIN, Inflating

HEAD_LIMIT = 64 << 20
"""Bytes before the first event and behind the last one (tables of devices and process groups) that
are looked through at most.
"""
PIECE_LIMIT = 64 << 20
"""Bytes without a place to cut at that are read at most."""

LEARNT_FROM = 1 << 20
"""Bytes that the first two events take at most; a longer text is cut nowhere."""

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(r'\s*,\s*\{\s*"[^"\\]*"')
_DECODER = json.JSONDecoder(strict=False)


_NAME = re.compile(rb'"name": "((?:[^"\n]|"(?!,))*)')
_BEHIND = re.compile(rb'",\s*"pid": ')
_QUOTE = re.compile(rb'(?<!\\)"')


def mended(text: bytes) -> bytes:
    """The text with the quotes in names escaped, which Kineto leaves as they are up to torch 2.13
    (mended in its eba157ad).
    """

    def escaped(found: re.Match[bytes]) -> bytes:
        if b'"' not in found[1] or not _BEHIND.match(text, found.end()):
            return found[0]
        return b'"name": "' + _QUOTE.sub(rb"\"", found[1])

    return _NAME.sub(escaped, text)


def damaged(path: object, said: str) -> AuditProblem:
    """The one sentence about a trace of which not all can be read."""
    return AuditProblem(f"{path} is damaged: {said}", AGAIN)


class Pieces:
    """Iterates over JSON lists of events as text. ``head`` and ``tail``, what stands around the
    events, are final once the iteration has ended. All raise AuditProblem where the text is no
    whole trace.
    """

    def __init__(self, chunks: Inflating) -> None:
        self.head = b""
        self.tail = b""
        self._path = chunks.path
        self._chunks = iter(chunks)

    def __iter__(self) -> Iterator[bytes]:
        rest, between = self._learnt(self._first_event())
        parts, size, opening = [rest], len(rest), between.find(b"{")
        while True:
            last = parts[-1]
            # one that lies across two chunks is not seen, and stays inside a piece
            cut = last.rfind(between) if between else -1
            if cut >= 0:
                yield b"".join((b"[", *parts[:-1], memoryview(last)[: cut + 1], b"]"))
                parts = [last[cut + opening :]]
                size = len(parts[0])
            elif size > PIECE_LIMIT:
                raise damaged(self._path, f"no event ends in {PIECE_LIMIT >> 20} MiB of it")
            if not (more := next(self._chunks, b"")):
                break
            parts.append(more)
            size += len(more)
        yield self._last(b"".join(parts))

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
                self.head = text[: len(text) - behind]
                return text[len(text) - behind :]
            if size > HEAD_LIMIT or not (more := next(self._chunks, b"")):
                break
            parts.append(more)
            size += len(more)
            window = window[-64:] + more  # the key may lie across two chunks
        raise self._not_a_trace(start)

    def _not_a_trace(self, start: bytes) -> AuditProblem:
        path = self._path
        if not start:
            return AuditProblem(
                f"{path} holds no text", "record the trace again, or copy it again in binary mode"
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

    def _learnt(self, rest: bytes) -> tuple[bytes, bytes]:
        """The text that was read so far, and what stands between its first two events: the end of
        one, a comma, the first key of the next. Empty where there are fewer than two.
        """
        tried = 0
        while True:
            if len(rest) >= 2 * tried:  # else time grows with the square of a long event
                tried = len(rest)
                if between := _between(rest) or _between(mended(rest)):
                    return rest, between
            if len(rest) > LEARNT_FROM or not (more := next(self._chunks, b"")):
                return rest, b""
            rest += more

    def _last(self, rest: bytes) -> bytes:
        """The last piece: its list is closed by ``]``, and the file's other keys follow."""
        found = _closed(rest) or _closed(mended(rest))
        if found is None:
            said = "it ends in the middle of its events, or they are no JSON"
            raise damaged(self._path, said)
        piece, self.tail = found
        return piece


def _closed(raw: bytes) -> tuple[bytes, bytes] | None:
    """The list of events that a text begins with, and what follows; None where it is not whole."""
    try:
        text = "[" + raw.decode("utf-8")
        _, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return text[:end].encode(), text[end:].encode()


def _between(raw: bytes) -> bytes:
    """What stands between the first two events of a text; empty where they are not whole."""
    text = raw.decode("utf-8", "surrogateescape").lstrip()
    try:
        _, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return b""
    found = _BETWEEN.match(text, end) if text[end - 1] == "}" else None
    return b"}" + found[0].encode("utf-8", "surrogateescape") if found is not None else b""
