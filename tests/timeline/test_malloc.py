"""Freed memory that is kept: only where the C library can, and where it can, blocks are used
again.
"""

import ctypes
import gc
import platform
import resource
import subprocess
import sys

import pytest

from auditor.timeline import malloc

ON_GLIBC = platform.libc_ver()[0] == "glibc"

FAULTS = """
import resource, sys
import numpy as np
from auditor.timeline.malloc import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
def turn():
    for _ in range(50):
        np.ones(3 << 17) + 1  # 3 MiB each: more than imports leave free on the heap
turn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
turn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not ON_GLIBC, reason="mallopt is glibc's")
def test_blocks_are_used_again_rather_than_faulted_in(monkeypatch):
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(1 << 17))  # glibc's own, without its guesses

    def faults(how: str) -> int:
        return int(
            subprocess.run(
                [sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True
            ).stdout
        )

    page = resource.getpagesize()
    assert faults("kept") < (3 << 20) / page  # less than one block
    assert faults("") > 50 * (3 << 20) / page


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert malloc.keep_freed_memory() is False


def test_cycles_are_looked_for_seldom_inside_and_as_before_outside():
    before = gc.get_threshold()
    with pytest.raises(KeyError), malloc.cycles_looked_for_seldom():
        assert gc.get_threshold() == (malloc.ALLOCATED, *before[1:])
        raise KeyError
    assert gc.get_threshold() == before


@pytest.mark.parametrize("chosen", [0, 10 * malloc.ALLOCATED])
def test_who_looks_for_cycles_more_seldom_still_goes_on_so(chosen):
    before = gc.get_threshold()
    gc.set_threshold(chosen, *before[1:])
    try:
        with malloc.cycles_looked_for_seldom():
            assert gc.get_threshold()[0] == chosen
    finally:
        gc.set_threshold(*before)
