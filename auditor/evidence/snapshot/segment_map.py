"""The segment map of a device: its reserved memory laid out in rows of equal size, blocks by line,
free parts visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.snapshot.by_line import REST, Owner
from auditor.evidence.snapshot.file import Event
from auditor.evidence.snapshot.segments import FREE as UNUSED
from auditor.model.charts import Bar, Lanes, Tone

ROWS = 16
"""Rows at most; each holds a power of two of bytes."""

PARTS = 250
"""A row is drawn in parts of at least this fraction: what is smaller is joined with its
neighbours.
"""

EDGES, APART = 800, 80
"""Borders of segments that are drawn at most, and the fraction of a row by which they are apart at
least.
"""
FREE = Tone("free", 0)


@dataclass(frozen=True)
class _Piece:
    start: int
    size: int
    tone: Tone
    label: str
    blocks: int = 1


OwnerOf = Callable[[int, Event], Owner]
"""Who allocated a live block, from its address and what the snapshot says of it."""


def segment_map(
    segments: Sequence[Event],
    device: int,
    tones: Mapping[Owner, Tone],
    owner: OwnerOf,
    *,
    note: str,
) -> Lanes | None:
    """The map; None where nothing is reserved. The largest segments come first."""
    ordered = sorted(segments, key=lambda segment: -int(segment["total_size"]))
    reserved = sum(int(segment["total_size"]) for segment in ordered)
    if not reserved:
        return None
    row = 1 << max(0, (-(-reserved // ROWS) - 1).bit_length())
    pieces = list(_pieces(ordered, tones, owner))
    drawn = list(_joined(_wrapped(pieces, row), row // PARTS, row))
    known = tuple(dict.fromkeys((FREE, *tones.values(), Tone(REST, -1))))
    used = tuple(
        tone for tone in known if tone is FREE or any(piece.tone == tone for piece in drawn)
    )
    return Lanes(
        kind="segments",
        title=f"Segments of cuda:{device}, and the lines whose blocks lie in them",
        note=f"{note} {amounts.size(sum(piece.size for piece in pieces if piece.tone is FREE))} of it are free.",
        unit="bytes",
        lanes=tuple(f"{number * row}" for number in range(-(-reserved // row))),
        tones=used,
        bars=tuple(
            Bar(p.start // row, float(p.start % row), float(p.size), used.index(p.tone), p.label)
            for p in drawn
        ),
        edges=tuple(_edges(ordered, row)),
        total=len(pieces),
        codes=("MEM004", "MEM005", "MEM008", "MEM009", "MEM015"),
    )


def _pieces(
    segments: Sequence[Event], tones: Mapping[Owner, Tone], owner: OwnerOf
) -> Iterator[_Piece]:
    place = 0
    for number, segment in enumerate(segments, 1):
        address, room = int(segment.get("address", 0)), int(segment["total_size"])
        for block in segment["blocks"]:
            size, live = (
                min(int(block["size"]), room),
                block["state"] != UNUSED,
            )  # a damaged block ends with its segment
            room -= size
            whose = owner(address, block) if live else "free"
            tone = tones.get(whose, Tone(REST, -1)) if live else FREE
            yield _Piece(place, size, tone, f"segment {number} of {len(segments)}")
            place, address = place + size, address + size


def _wrapped(pieces: Sequence[_Piece], row: int) -> Iterator[_Piece]:
    """Each piece cut where a row ends."""
    for piece in pieces:
        start, end = piece.start, piece.start + piece.size
        while start < end:
            stop = min(end, (start // row + 1) * row)
            yield _Piece(start, stop - start, piece.tone, piece.label)
            start = stop


def _joined(pieces: Iterator[_Piece], least: int, row: int) -> Iterator[_Piece]:
    """Pieces smaller than ``least`` joined until they are as large, under the tone that most of
    their bytes have.
    """
    small: list[_Piece] = []
    size = 0
    for piece in pieces:
        if small and (piece.size >= least or piece.start // row != small[0].start // row):
            yield _join(small)
            small, size = [], 0
        if piece.size >= least:
            yield piece
            continue
        small.append(piece)
        size += piece.size
        if size >= least:
            yield _join(small)
            small, size = [], 0
    if small:
        yield _join(small)


def _join(small: Sequence[_Piece]) -> _Piece:
    if len(small) == 1:
        return small[0]
    shares: dict[Tone, int] = {}
    for piece in small:
        shares[piece.tone] = shares.get(piece.tone, 0) + piece.size
    size = sum(shares.values())
    free = shares.get(FREE, 0) / size if size else 0.0
    most = max(shares, key=lambda tone: shares[tone])
    return _Piece(
        small[0].start,
        size,
        most,
        f"{len(small)} small pieces, {amounts.percent(free)} free",
        len(small),
    )


def _edges(segments: Sequence[Event], row: int) -> Iterator[tuple[int, float]]:
    """Borders between segments, as far as they can be told apart."""
    place, last, given = 0, -row, 0
    for segment in segments:
        if place - last >= row // APART and given < EDGES:
            yield place // row, float(place % row)
            last, given = place, given + 1
        place += int(segment["total_size"])
