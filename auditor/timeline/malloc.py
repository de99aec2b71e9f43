"""What the C library does with freed memory, in a process of our own that reads traces."""

from __future__ import annotations

import ctypes

MAPPED = 4 << 20
"""Bytes from which a block is still mapped by itself, and given back to the kernel when it is
freed.
"""
KEPT = 2 * MAPPED
"""Free bytes at the end of the heap that are kept."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


def keep_freed_memory() -> bool:
    """Let the C library reuse freed blocks of up to :data:`MAPPED` bytes; whether it understood.

    numpy's temporaries of a trace are larger than glibc's threshold (128 KiB at first), so each is
    mapped, faulted in page by page and unmapped again: a tenth of the time to read a trace and
    compute its tables (docs/trace-reading.md), for nothing. Only for processes that are ours: a
    user's program keeps its own settings. Other C libraries have no ``mallopt``.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED) and mallopt(_M_TRIM_THRESHOLD, KEPT))
