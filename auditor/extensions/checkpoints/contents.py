"""What a checkpoint file holds, as far as it can be told without running anything: the nouns of
this room.
"""

from __future__ import annotations

from dataclasses import dataclass

BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "complex64": 8,
    "complex128": 16,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
    "bytes": 1,
    "complex32": 4,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "qint8": 1,
    "quint8": 1,
    "qint32": 4,
    "quint4x2": 1,
    "quint2x4": 1,
    "float4_e2m1fn_x2": 1,
    "bits8": 1,
    "bits16": 2,
    "bits1x8": 1,
    "bits2x4": 1,
    "bits4x2": 1,
    **{f"{sign}int{bits}": 1 for sign in ("", "u") for bits in range(1, 8)},
}
"""Bytes of an element by dtype; of any other dtype the values are not looked at. ``bytes`` is an
untyped storage.
"""


PACKED = {"quint4x2": 2, "quint2x4": 4}
"""Numbers in an element of a storage, by dtype: of the others one."""

COUNT = 2**63
"""Sizes, offsets and counters of a real file are smaller."""


def printable(text: str) -> str:
    """A word of the file in characters that can be shown and written: controls and halves of
    characters are escaped.
    """
    return text if text.isprintable() else ascii(text)[1:-1]


class NotACheckpoint(Exception):
    """The file is of no format that is read here; the message is one sentence for the user."""


class Malformed(Exception):
    """A part of a checkpoint contradicts itself; the message says how, without the file's name.

    ``foreign`` are the names that were asked for before: a loader calls them although the rest is
    damaged.
    """

    foreign: tuple[str, ...] = ()


@dataclass(frozen=True)
class Storage:
    """A run of elements in the file. ``numel`` counts elements of ``dtype``; ``key`` names it
    within the file.

    ``shift`` is where a storage that is part of another one begins, and ``part`` its number of
    elements (files before torch 1.6). ``raw`` are the bytes of one that is in the pickle.
    """

    key: str
    dtype: str
    numel: int
    shift: int = 0
    part: int | None = None
    raw: bytes | None = None

    @property
    def within(self) -> int:
        """Elements that a tensor of it may have."""
        return self.numel if self.part is None else self.part


@dataclass(frozen=True)
class Stored:
    """A tensor as the file describes it: a view of a storage. Offset and strides count elements."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def span(self) -> int:
        """Elements of the storage from the first to the last that the view touches; 0 for an empty
        tensor.
        """
        if 0 in self.shape:
            return 0
        steps = zip(self.shape, self.stride, strict=True)
        last = sum((size - 1) * step for size, step in steps)
        return last // PACKED.get(self.dtype, 1) + 1

    @property
    def span_bytes(self) -> int:
        """Bytes of :attr:`span`; of a dtype that is not known here one for each element."""
        return self.span * BYTES.get(self.dtype, 1)
