"""Reads ``PYTORCH_CUDA_ALLOC_CONF`` as torch reads it, and answers what follows from it: how
requests are rounded.

Names in capitals are torch's constants; they stand in c10/core/AllocatorConfig.h (2.9 and later;
before that in c10/cuda/CUDACachingAllocator.cpp). All sizes in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

MIB = 1 << 20
MIN_BLOCK = 512
"""kMinBlockSize: every request is rounded up to a multiple of it."""
SMALL_SIZE = 1 * MIB
"""kSmallSize: the largest request that the small pool serves."""
SMALL_BUFFER = 2 * MIB
"""kSmallBuffer: what the small pool obtains from the device at once."""
LARGE_BUFFER = 20 * MIB
"""``large_segment_size_``, once kLargeBuffer: what a request below MIN_LARGE_ALLOC obtains."""
MIN_LARGE_ALLOC = 10 * MIB
"""kMinLargeAlloc: from here on a request gets a segment of its own size."""
ROUND_LARGE = 2 * MIB
"""kRoundLarge: such a segment is a multiple of it."""
INTERVALS = 16
"""kRoundUpPowerOfTwoIntervals of ``roundup_power2_divisions``: powers of two, 1 MiB to 32 GiB."""


@dataclass(frozen=True)
class AllocatorSettings:
    """Settings of the caching allocator, torch's defaults where nothing was said. What depends on
    a limit of the process's memory (garbage collection) is not simulated.
    """

    expandable_segments: bool = False
    max_split_size: int | None = None
    max_non_split_rounding: int = LARGE_BUFFER
    large_segment_size: int = LARGE_BUFFER
    roundup_power2_divisions: tuple[int, ...] = (0,) * INTERVALS
    text: str = ""

    @classmethod
    def parse(cls, text: str) -> AllocatorSettings:
        """From ``key:value,key:[a:b,c:d]``. What torch refuses, or is not simulated, is dropped."""
        settings = cls(text=text)
        for key, value in _PAIR.findall("".join(text.split())):
            if key in _READERS:
                field, read = _READERS[key]
                with suppress(ValueError):
                    settings = replace(settings, **{field: read(value)})
        return settings

    @classmethod
    def from_snapshot(cls, recorded: Mapping[str, Any] | None) -> AllocatorSettings:
        """From a snapshot's ``allocator_settings``: its text, and over it the values in force."""
        recorded = recorded or {}
        settings = cls.parse(str(recorded.get("PYTORCH_CUDA_ALLOC_CONF") or ""))
        split = int(recorded.get("max_split_size", settings.max_split_size or -1))
        divisions = recorded.get("roundup_power2_divisions") or {}
        known = tuple(int(divisions.get(str(1 << power), 0)) for power in range(INTERVALS))
        return replace(
            settings,
            expandable_segments=bool(
                recorded.get("expandable_segments", settings.expandable_segments)
            ),
            max_split_size=split if split > 0 else None,
            roundup_power2_divisions=known if divisions else settings.roundup_power2_divisions,
        )

    def round_size(self, nbytes: int) -> int:
        """Bytes of the block for ``nbytes`` (``round_size`` in CUDACachingAllocator.cpp)."""
        if nbytes < MIN_BLOCK:
            return MIN_BLOCK
        divisions = self.divisions(nbytes)
        if divisions > 1 and nbytes > MIN_BLOCK * divisions:
            floor = 1 << (nbytes.bit_length() - 1)
            part = floor >> (divisions.bit_length() - 1)
            if nbytes == floor or part == 0:
                return nbytes if nbytes == floor else floor << 1
            return _multiple(nbytes, part)
        return _multiple(nbytes, MIN_BLOCK)

    def divisions(self, nbytes: int) -> int:
        """Parts of the power of two that holds ``nbytes``; 0 or 1 if sizes are not rounded so."""
        interval = nbytes.bit_length() - MIB.bit_length()
        return self.roundup_power2_divisions[min(max(interval, 0), INTERVALS - 1)]

    def segment_size(self, rounded: int) -> int:
        """Bytes asked of the device for a block of ``rounded`` bytes (``get_allocation_size``)."""
        if rounded <= SMALL_SIZE:
            return SMALL_BUFFER
        return (
            self.large_segment_size
            if rounded < MIN_LARGE_ALLOC
            else _multiple(rounded, ROUND_LARGE)
        )

    def is_oversize(self, size: int) -> bool:
        """Whether a block of that size is one that ``max_split_size_mb`` forbids to split."""
        return self.max_split_size is not None and size >= self.max_split_size

    def splits(self, block_size: int, rounded: int, *, small: bool) -> bool:
        """Whether a free block is split to serve ``rounded`` bytes (``should_split``)."""
        remaining = block_size - rounded
        if small or self.expandable_segments:
            return remaining >= MIN_BLOCK
        return remaining > SMALL_SIZE and not self.is_oversize(rounded)

    def fits(self, block_size: int, rounded: int) -> bool:
        """Whether the best-fitting block may serve the request (oversize, ``get_free_block``)."""
        if self.is_oversize(rounded):
            return block_size < rounded + self.max_non_split_rounding
        return not self.is_oversize(block_size)


def _multiple(size: int, of: int) -> int:
    return (size + of - 1) // of * of


_PAIR = re.compile(r"(\w+):(\[[^\]]*\]|[^,\[]+)")
_PART = re.compile(r"(\d+|>):(\d+)")


def _mebibytes(value: str, *, least: int = LARGE_BUFFER) -> int:
    size = int(value) * MIB
    if size < least:
        raise ValueError(value)
    return size


def _divisions(value: str) -> tuple[int, ...]:
    """One number for all sizes, or ``[256:1,512:2,>:4]`` with sizes in MiB; sizes below the first
    named take its number, sizes between two that of none.
    """
    if not value.startswith("["):
        return (_division(value),) * INTERVALS
    table, last, named = [0] * INTERVALS, 0, False
    for size, parts in _PART.findall(value):
        if size == ">":  # all sizes above the last one named
            table[last + 1 :] = [_division(parts)] * (INTERVALS - last - 1)
            continue
        last = min(_division(size).bit_length() - 1, INTERVALS - 1)
        if not named:
            table[:last] = [_division(parts)] * last
        table[last], named = _division(parts), True
    return tuple(table)


def _division(value: str) -> int:
    number = int(value)
    if number < 1 or number & (number - 1):
        raise ValueError(value)
    return number


_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "expandable_segments": ("expandable_segments", "True".__eq__),
    "max_split_size_mb": ("max_split_size", _mebibytes),
    "max_non_split_rounding_mb": ("max_non_split_rounding", _mebibytes),
    "large_segment_size_mb": (
        "large_segment_size",
        partial(_mebibytes, least=MIN_LARGE_ALLOC + MIB),
    ),
    "roundup_power2_divisions": ("roundup_power2_divisions", _divisions),
}
