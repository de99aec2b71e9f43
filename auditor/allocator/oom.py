"""The error of a simulated device that is full, in torch's own words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shortage:
    """The figures of one failed request, in bytes.

    ``tried`` is what was asked of the device: the whole segment, more than ``requested``. ``free``
    is what the device had left, ``in_use`` what this process takes of it (the CUDA context too).
    """

    requested: int
    tried: int
    device: int
    total: int
    free: int
    in_use: int
    allocated: int
    reserved: int

    @property
    def unallocated(self) -> int:
        """Bytes that the allocator holds and no tensor uses: large where memory is fragmented."""
        return self.reserved - self.allocated

    @property
    def message(self) -> str:
        """What torch writes (``malloc`` in CUDACachingAllocator.cpp), its double spaces too."""
        return (
            f"CUDA out of memory. Tried to allocate {format_size(self.tried)}. GPU {self.device} "
            "has a total capacity of"
            f" {format_size(self.total)} of which {format_size(self.free)} is free. Including "
            "non-PyTorch memory, this"
            f" process has {format_size(self.in_use)} memory in use. Of the allocated "
            "memory"
            f" {format_size(self.allocated)} is allocated by PyTorch, and "
            f"{format_size(self.unallocated)} is reserved by"
            " PyTorch but unallocated. If reserved but unallocated memory is large try setting"
            " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
            "documentation for Memory"
            " Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
            "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
        )


class OutOfMemory(RuntimeError):
    """No memory for a request, with the cache given back. ``str()`` is torch's message."""

    def __init__(self, shortage: Shortage) -> None:
        super().__init__(shortage)
        self.shortage = shortage

    def __str__(self) -> str:
        return self.shortage.message


def format_size(size: int) -> str:
    """A size as torch's messages write it: a unit from just above one (``format_size``)."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size > unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} bytes"
