"""What the C library does with freed memory, and when Python looks for cycles, in a process of our
own that reads traces.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

MAPPED = 4 << 20
"""Bytes from which a block is still mapped by itself, and given back to the kernel when it is
freed.
"""
KEPT = 2 * MAPPED
"""Free bytes at the end of the heap that are kept."""
ALLOCATED = 100_000
"""Objects that are made before Python looks for cycles; 700 in Python 3.11."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


def keep_freed_memory() -> bool:
    """Let the C library reuse freed blocks of up to :data:`MAPPED` bytes; whether it understood.

    numpy's temporaries of a trace are larger than glibc's threshold (128 KiB at first), so each is
    mapped, faulted in page by page and unmapped again: a tenth of the time to read a trace and
    compute its tables (docs/log/trace-reading.md), for nothing. Only for processes that are ours: a
    user's program keeps its own settings. Other C libraries have no ``mallopt``.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED) and mallopt(_M_TRIM_THRESHOLD, KEPT))


@contextmanager
def cycles_looked_for_seldom() -> Iterator[None]:
    """Inside, the cyclic garbage collector runs once in :data:`ALLOCATED` objects.

    Rows of a trace, findings and pages are trees that reference counts free. Looking at all of them
    for cycles every 700 objects is a tenth of ``audit analyze``.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(ALLOCATED, before[0]) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
