"""Bytes of a trace file as they come: plain or gzip by content, and bounded."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from auditor.errors import AuditProblem

_ERRORS: list[Any] = [zlib.error]
_decompressor: Callable[[int], Any] = zlib.decompressobj
try:
    from isal import isal_zlib
except ImportError:  # no wheel for this machine: the standard library is 4 times slower at this, and this is a tenth of reading
    pass
else:
    _ERRORS.append(isal_zlib.error)
    _decompressor = isal_zlib.decompressobj

RAW_LIMIT = 8 << 30
"""Bytes of text that are read at most: a file from a stranger may inflate a thousandfold."""

RATIO, UNPACKED_AT_LEAST = 100, 64 << 20
"""Bytes of text for each packed byte that are read of a gzip file at most, and of a small one.
Traces inflate 15-18 times, those of one operator in a loop 40 times; a bomb a thousand times."""

AGAIN = "record the trace again, or copy it again once its writer has ended"

PLAIN_CHUNK = 256 << 10
GZIP_CHUNK = 16 << 10  # traces inflate 15-18 times, so about PLAIN_CHUNK of text
TEXT_CHUNK = (
    2 << 20
)  # of a bomb it would be a thousand times as much, and each byte of text can become 50 bytes of events
GZIP_MAGIC = b"\x1f\x8b"


class Inflating:
    """Iterates over chunks of text. ``raw_bytes`` is complete once the iteration has ended.

    Raises AuditProblem where the packed data is damaged or longer than any trace.
    """

    def __init__(self, path: Path, limit: int = RAW_LIMIT) -> None:
        self.path = path
        self.limit = limit
        self.raw_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            packed = file.read(2) == GZIP_MAGIC
            file.seek(0)
            limit, why = self.limit, "record fewer steps"
            real = max(UNPACKED_AT_LEAST, RATIO * self.path.stat().st_size)
            if packed and real < limit:
                limit, why = real, f"it inflates more than {RATIO}-fold, as no trace does"
            chunks = self._inflated(file) if packed else iter(lambda: file.read(PLAIN_CHUNK), b"")
            for chunk in chunks:
                self.raw_bytes += len(chunk)
                if self.raw_bytes > limit:
                    raise AuditProblem(f"{self.path} holds more than {limit >> 20} MiB", why)
                yield chunk

    def _inflated(self, file: Any) -> Iterator[bytes]:
        stream = _decompressor(31)
        while packed := file.read(GZIP_CHUNK):
            while packed:
                try:
                    text = stream.decompress(packed, TEXT_CHUNK)
                except tuple(_ERRORS):
                    said = f"its gzip data cannot be unpacked after {self.raw_bytes:,} bytes"
                    raise AuditProblem(f"{self.path} is damaged: {said}", AGAIN) from None
                if text:
                    yield text
                if not stream.eof:
                    packed = stream.unconsumed_tail
                    continue
                packed = stream.unused_data or file.read(GZIP_CHUNK)
                if packed[:2] != GZIP_MAGIC:
                    return
                stream = _decompressor(31)  # members put one behind another are one text
        raise AuditProblem(f"{self.path} is damaged: its gzip data ends in the middle", AGAIN)
