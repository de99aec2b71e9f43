"""Times as microseconds since 1970 with three decimals (Kineto before 2024) do not fit a float64:
it steps by 0.25 us there.

So the four leading digits, which are the same for days, are taken off the text before it is
decoded, and added again in whole nanoseconds.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

_LONG = re.compile(rb'("ts": ?)(\d{4})\d{12}\.\d')
_MARK = 10**12
"""Microseconds that stand for the digits taken off: a short time lies between this and twice this,
where floats are exact.
"""


class EpochClock:
    """Shortens the times of a trace that needs it; other traces pass untouched."""

    def __init__(self) -> None:
        self._pattern: re.Pattern[bytes] | None = None
        self._short = b""
        self._shift_us = 0
        self._looked = False

    def shorten(self, piece: bytes) -> bytes:
        """The piece with short times."""
        if not self._looked and b'"ts"' in piece:
            self._looked = True
            if found := _LONG.search(piece):
                self._pattern = re.compile(
                    found[1] + found[2] + rb"(?=\d{12}\.)"
                )  # begins literally: 3 times faster
                self._short = found[1] + b"1"
                self._shift_us = int(found[2]) * _MARK - _MARK
        return self._pattern.sub(self._short, piece) if self._pattern else piece

    def restore(self, ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Nanoseconds of decoded times, with what was taken off."""
        if not self._shift_us:
            return ns
        short = (ns >= _MARK * 1000) & (ns < 2 * _MARK * 1000)
        result: NDArray[np.int64] = ns + np.where(short, self._shift_us * 1000, 0)
        return result
