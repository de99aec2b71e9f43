"""Reads ``PYTORCH_CUDA_ALLOC_CONF`` as torch reads it, and answers what follows from it: how
requests are rounded.

Names in capitals are torch's constants; they stand in c10/core/AllocatorConfig.h (2.9 and later;
before that in c10/cuda/CUDACachingAllocator.cpp). All sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

MIB = 1 << 20
MIN_BLOCK = 512
"""kMinBlockSize: every request is rounded up to a multiple of it."""
SMALL_SIZE = 1 * MIB
"""kSmallSize: the largest request that the small pool serves."""
SMALL_BUFFER = 2 * MIB
"""kSmallBuffer: what the small pool obtains from the device at once."""
LARGE_BUFFER = 20 * MIB
"""``large_segment_size_``, once kLargeBuffer: what the large pool obtains for a request below
MIN_LARGE_ALLOC.
"""
MIN_LARGE_ALLOC = 10 * MIB
"""kMinLargeAlloc: from here on a request gets a segment of its own size."""
ROUND_LARGE = 2 * MIB
"""kRoundLarge: such a segment is a multiple of it."""
INTERVALS = 16
"""kRoundUpPowerOfTwoIntervals of ``roundup_power2_divisions``: one for each power of two from 1 MiB
to 32 GiB.
"""

UNMODELLED = frozenset(
    """
    backend release_lock_on_cudamalloc release_lock_on_hipmalloc pinned_use_cuda_host_register
    pinned_use_hip_host_register pinned_num_register_threads pinned_use_background_threads
    pinned_reserve_segment_size_mb pinned_max_round_threshold_mb pinned_max_cached_size_mb
    pinned_free_catch_all graph_capture_record_stream_reuse throw_on_cudamalloc_oom
    """.split()
)
"""Keys that torch knows and that change nothing here: another backend, host memory, locks, CUDA
graphs.
"""


@dataclass(frozen=True)
class AllocatorSettings:
    """Settings of the caching allocator, torch's defaults where nothing was said.

    ``unmodelled`` are keys that torch knows and the simulation does not follow, ``unknown`` those
    that torch does not know either; both as ``(key, value)`` in the order in which they stood.
    """

    expandable_segments: bool = False
    max_split_size: int | None = None
    max_non_split_rounding: int = LARGE_BUFFER
    large_segment_size: int = LARGE_BUFFER
    garbage_collection_threshold: float = 0.0
    roundup_power2_divisions: tuple[int, ...] = (0,) * INTERVALS
    per_process_memory_fraction: float = 1.0
    unmodelled: tuple[tuple[str, str], ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    text: str = ""

    @classmethod
    def parse(cls, text: str) -> AllocatorSettings:
        """From ``key:value,key:[a:b,c:d]``. Raises :class:`ValueError`, in one sentence, where
        torch would refuse the value.
        """
        settings = cls(text=text)
        for key, value in _pairs("".join(text.split())):
            if key in _READERS:
                field, read = _READERS[key]
                settings = replace(settings, **{field: read(key, value)})
            elif key in UNMODELLED:
                settings = replace(settings, unmodelled=(*settings.unmodelled, (key, value)))
            else:
                settings = replace(settings, unknown=(*settings.unknown, (key, value)))
        return _checked(settings)

    @classmethod
    def from_snapshot(cls, recorded: Mapping[str, Any] | None) -> AllocatorSettings:
        """From ``allocator_settings`` of a memory snapshot: the text it carries, and over it the
        values in force.

        Raises :class:`ValueError` if that text is one that torch refuses.
        """
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
            garbage_collection_threshold=float(
                recorded.get("garbage_collection_threshold", settings.garbage_collection_threshold)
            ),
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

    def page_size(self, *, small: bool) -> int:
        """Bytes that an expandable segment grows by."""
        return SMALL_BUFFER if small else self.large_segment_size

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


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Keys and values; commas inside brackets belong to the value."""
    while text:
        key, colon, rest = text.partition(":")
        if not key or not colon or "," in key:
            raise ValueError(f"'{text}' in the allocator settings has not the form key:value")
        if rest.startswith("["):
            value, bracket, text = rest.partition("]")
            if not bracket:
                raise ValueError(f"the list of {key} is not closed by ]")
            value += bracket
        else:
            value, comma, text = rest.partition(",")
            text = comma + text
        if not value:
            raise ValueError(f"{key} has no value")
        if text and not text.startswith(","):
            raise ValueError(f"after {key}:{value} a comma is expected, not '{text}'")
        text = text[1:]
        yield key, value


def _integer(key: str, value: str) -> int:
    if not value.isdecimal():
        raise ValueError(f"{key} must be a whole number, not '{value}'")
    return int(value)


def _mebibytes(key: str, value: str) -> int:
    return _integer(key, value) * MIB


def _boolean(key: str, value: str) -> bool:
    if value not in {"True", "False"}:
        raise ValueError(f"{key} must be True or False, not '{value}'")
    return value == "True"


def _number(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{key} must be a number, not '{value}'") from None


def _division(key: str, value: str) -> int:
    number = _integer(key, value)
    if number & (number - 1):
        raise ValueError(f"{key} must be a power of two, not {number}")
    return number


def _divisions(key: str, value: str) -> tuple[int, ...]:
    """One number for all sizes, or ``[256:1,512:2,>:4]`` with sizes in MiB; sizes below the first
    named take its number.
    """
    if not value.startswith("["):
        number = _division(key, value)
        if not number:
            raise ValueError(f"{key} must be a power of two, not 0")
        return (number,) * INTERVALS
    table = [0] * INTERVALS
    last, named = 0, False
    for size, parts in _pairs(value[1:-1]):
        number = _division(key, parts)
        if size == ">":  # all sizes above the last one named
            table[last + 1 :] = [number] * (INTERVALS - last - 1)
            continue
        if not _division(key, size):
            raise ValueError(f"{key} must name its sizes by powers of two, not 0")
        last = min(int(size).bit_length() - 1, INTERVALS - 1)
        if not named:
            table[:last] = [number] * last
        table[last], named = number, True
    return tuple(table)


def _checked(settings: AllocatorSettings) -> AllocatorSettings:
    """The limits that torch sets. Raises :class:`ValueError`."""
    least = settings.large_segment_size
    if least <= MIN_LARGE_ALLOC:
        raise ValueError(f"large_segment_size_mb must be above {MIN_LARGE_ALLOC // MIB}")
    if settings.max_split_size is not None and settings.max_split_size < least:
        raise ValueError(f"max_split_size_mb must be at least {least // MIB}")
    if "max_non_split_rounding_mb" in settings.text and settings.max_non_split_rounding < least:
        raise ValueError(f"max_non_split_rounding_mb must be at least {least // MIB}")
    if (
        "garbage_collection_threshold" in settings.text
        and not 0 < settings.garbage_collection_threshold < 1
    ):
        raise ValueError("garbage_collection_threshold must lie between 0 and 1")
    if not 0 <= settings.per_process_memory_fraction <= 1:
        raise ValueError("per_process_memory_fraction must lie between 0 and 1")
    return settings


_READERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "expandable_segments": ("expandable_segments", _boolean),
    "max_split_size_mb": ("max_split_size", _mebibytes),
    "max_non_split_rounding_mb": ("max_non_split_rounding", _mebibytes),
    "large_segment_size_mb": ("large_segment_size", _mebibytes),
    "garbage_collection_threshold": ("garbage_collection_threshold", _number),
    "roundup_power2_divisions": ("roundup_power2_divisions", _divisions),
    "per_process_memory_fraction": ("per_process_memory_fraction", _number),
}
