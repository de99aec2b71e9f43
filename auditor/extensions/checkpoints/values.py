"""Counts what is not finite in stretches of raw memory, a few megabytes at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from auditor.evidence.scans import Tally
from auditor.extensions.checkpoints.contents import BYTES, Malformed, Stored

if TYPE_CHECKING:
    from numpy.typing import NDArray

Read = Callable[[int, int], bytes]
"""Bytes of a storage: from this byte, so many."""

PIECE = 2**22
"""Bytes that are looked at at once."""

STRIDED = 2**26
"""Bytes up to which a view with gaps is looked at element by element; of a larger one the gaps are
counted with it.
"""

INDICES = 2**28
"""Bytes of indices that are looked at."""

NAN_CODES = {
    "float8_e4m3fn": (0x7F, 0xFF),
    "float8_e4m3fnuz": (0x80,),
    "float8_e5m2fnuz": (0x80,),
    "float8_e8m0fnu": (0xFF,),
}
"""Bytes that stand for NaN in formats without infinities (OCP FP8 and the fnuz variants)."""

FLOATING = frozenset(
    {
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "float8_e5m2",
        "complex32",
        "complex64",
        "complex128",
        *NAN_CODES,
    }
)
"""dtypes whose values are looked at; an integer is always finite."""


def tally(stored: Stored, read: Read, *, big_endian: bool = False) -> Tally | None:
    """What is in a tensor; None where there is nothing to look for. Raises :class:`Malformed` if it
    leaves its storage.
    """
    width = BYTES.get(stored.dtype, 1 if stored.dtype in NAN_CODES else 0)
    if not width:
        return None
    held = stored.storage.numel * BYTES.get(stored.storage.dtype, width)
    first, span = stored.offset * width, stored.span * width
    if span and first + span > held:
        raise Malformed(f"needs bytes {first} to {first + span} of a storage of {held}")
    if stored.dtype not in FLOATING:
        return None
    dense = [
        (size, step)
        for size, step in zip(stored.shape, stored.stride, strict=True)
        if size > 1 and step
    ]
    numel = math.prod(size for size, _ in dense)
    if numel < stored.span and span <= STRIDED:
        return _strided(stored.dtype, read(first, span), dense, big_endian=big_endian)
    total = Tally()
    for begin in range(first, first + span, PIECE):
        total += count(
            _numbers(
                stored.dtype, read(begin, min(PIECE, first + span - begin)), big_endian=big_endian
            ),
            stored.dtype,
        )
    return total


def _strided(dtype: str, raw: bytes, dense: list[tuple[int, int]], *, big_endian: bool) -> Tally:
    import numpy as np

    numbers = _numbers(dtype, raw, big_endian=big_endian)
    shape, steps = [size for size, _ in dense], [step * numbers.itemsize for _, step in dense]
    return count(np.lib.stride_tricks.as_strided(numbers, shape, steps, writeable=False), dtype)


def _numbers(dtype: str, raw: bytes, *, big_endian: bool) -> NDArray[Any]:
    """The elements as numpy has them; floats that it lacks are widened, exactly."""
    import numpy as np

    order = ">" if big_endian else "<"
    if dtype == "bfloat16":
        return (np.frombuffer(raw, order + "u2").astype(np.uint32) << 16).view(np.float32)
    if dtype == "float8_e5m2":
        return (np.frombuffer(raw, np.uint8).astype(np.uint16) << 8).view(np.float16)
    if dtype in NAN_CODES:
        return np.frombuffer(raw, np.uint8)
    if dtype == "complex32":
        return np.frombuffer(raw, order + "f2").astype(np.float32).view(np.complex64)
    kinds = {
        "float64": "f8",
        "float32": "f4",
        "float16": "f2",
        "complex64": "c8",
        "complex128": "c16",
        "int64": "i8",
        "int32": "i4",
    }
    return np.frombuffer(raw, order + kinds[dtype])


def integers(stored: Stored, read: Read, *, big_endian: bool = False) -> NDArray[Any]:
    """The numbers of a tensor of ``int64`` or ``int32`` in its shape. Raises :class:`Malformed` if
    they are too many.
    """
    import numpy as np

    width = BYTES[stored.dtype]
    if stored.span_bytes > INDICES or math.prod(stored.shape) * width > INDICES:
        raise Malformed("it has more indices than any checkpoint needs")
    raw = read(stored.offset * width, stored.span_bytes)
    numbers = _numbers(stored.dtype, raw, big_endian=big_endian)
    steps = [step * width for step in stored.stride]
    return np.lib.stride_tricks.as_strided(numbers, stored.shape, steps, writeable=False)


def count(numbers: NDArray[Any], dtype: str) -> Tally:
    """Tally of one piece: its smallest and largest number first, which a NaN or an infinity cannot
    hide from.
    """
    import numpy as np

    if not numbers.size:
        return Tally()
    if dtype in NAN_CODES:
        return Tally(numbers.size, nan=int(np.isin(numbers, NAN_CODES[dtype]).sum()))
    if numbers.dtype.kind == "c":
        real, imaginary = count(numbers.real, ""), count(numbers.imag, "")
        worse = real if real.nonfinite >= imaginary.nonfinite else imaginary
        return Tally(
            numbers.size,
            worse.nan,
            worse.positive_inf,
            worse.negative_inf,
            *_range(real, imaginary),
        )
    with np.errstate(all="ignore"):
        low, high = float(numbers.min()), float(numbers.max())
        if math.isfinite(low) and math.isfinite(high):
            return Tally(numbers.size, low=low, high=high)
        finite = numbers[np.isfinite(numbers)]
    nan, positive = int(np.isnan(numbers).sum()), int((numbers == math.inf).sum())
    ends = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    return Tally(numbers.size, nan, positive, int((numbers == -math.inf).sum()), *ends)


def _range(one: Tally, other: Tally) -> tuple[float | None, float | None]:
    both = one + other
    return both.low, both.high
