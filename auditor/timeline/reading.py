"""A trace file to a :class:`Trace`: exact structs first, the tolerant way for pieces that do not fit, then event by event."""

from __future__ import annotations

from pathlib import Path

import msgspec

from auditor.errors import AuditProblem
from auditor.timeline import header
from auditor.timeline.columns import Builder
from auditor.timeline.events import EXACT, TOLERANT, Loose, loose
from auditor.timeline.fitting import Fitting
from auditor.timeline.inflating import RAW_LIMIT, Inflating
from auditor.timeline.pieces import BOUNDARY, Pieces
from auditor.timeline.trace import TABLES, Trace

_MISFITS = (msgspec.DecodeError, UnicodeDecodeError, ValueError, TypeError, OverflowError, RecursionError)


def read(path: Path | str, *, limit: int = RAW_LIMIT) -> Trace:
    """Read a torch.profiler trace (``.json`` or gzip, told apart by content).

    ``limit`` bounds the bytes of text that are read. What could not be read is named in ``warnings``; a file in which
    nothing is a trace raises :class:`auditor.errors.AuditProblem`.
    """
    path = Path(path)
    try:
        return _Reading(path, limit).trace()
    except OSError as error:
        raise AuditProblem(f"{path} cannot be read: {error.strerror or error}", "give the path of a trace file") from error


class _Reading:
    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.source = Inflating(path, limit)
        self.pieces = Pieces(self.source)
        self.builder = Builder()
        self.fitting = Fitting()
        self.events = 0

    def trace(self) -> Trace:
        for piece in self.pieces:
            if isinstance(piece, bytes):
                self._piece(piece)
            else:
                self._tolerant([loose(event) for event in piece])
        built, fitted = self.builder, self.fitting
        warnings = tuple(self._warnings())
        return Trace(
            path=str(self.path),
            raw_bytes=self.source.raw_bytes,
            events=self.events,
            names=built.names.values_in_order,
            threads=built.threads.threads,
            texts=built.texts.values_in_order,
            **{group: built.table(group) for group in TABLES},
            counts=dict(built.counts + fitted.counts),
            info=header.info(self.pieces.head, self.pieces.tail),
            warnings=warnings,
        )

    def _piece(self, piece: bytes) -> None:
        try:
            exact = EXACT.decode(piece)
            self.builder.add(exact)
            self.events += len(exact)
            return
        except _MISFITS:
            pass
        try:
            events = TOLERANT.decode(piece)
        except _MISFITS:
            texts = piece[1:-1].split(BOUNDARY)
            events = [loose(event) for event in self.pieces.salvage.each(_whole(texts), BOUNDARY)]
        self._tolerant(events)

    def _tolerant(self, events: list[Loose]) -> None:
        self.events += len(events)
        self.builder.add(fitted for fitted in map(self.fitting.fit, events) if fitted is not None)

    def _warnings(self) -> list[str]:
        salvage, built = self.pieces.salvage, self.builder
        said = [*self.source.warnings]
        if salvage.cut_off or (not salvage.closed and not self.pieces.complete):
            said.append("the file ends in the middle of its events: the writer was stopped, or the copy is incomplete")
        if salvage.mended:
            said.append(f"{_count(salvage.mended, 'event')} had a quote left unescaped in the name, and could be mended")
        if salvage.dropped:
            said.append(f"{_count(salvage.dropped, 'event')} could not be read and were left out")
        if timeless := built.absurd + self.fitting.timeless:
            said.append(f"{_count(timeless, 'span')} had no usable time and were left out")
        if built.negative:
            said.append(f"{_count(built.negative, 'span')} ended before they began and were taken as instants")
        if self.fitting.unended:
            said.append(f"{_count(self.fitting.unended, 'span')} began and never ended, and were left out")
        if not self.events:
            said.append("the trace holds no events")
        return said


def _whole(texts: list[bytes]) -> list[bytes]:
    """Texts between boundaries with the braces that the boundary took."""
    last = len(texts) - 1
    return [(b"{" if place else b"") + part + (b"}" if place < last else b"") for place, part in enumerate(texts)]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
