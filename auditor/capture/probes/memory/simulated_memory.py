"""What the rehearsed program would hold on the GPU: storages in a simulated allocator."""

from __future__ import annotations

import os
import sys
from collections import deque
from pathlib import Path
from typing import Any

import torch

from auditor.allocator import AllocatorSettings, CachingAllocator, OutOfMemory
from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes.memory.snapshot import OOM_SNAPSHOT, SNAPSHOT, write_whole
from auditor.capture.shadow.streams import current_stream
from auditor.recordings.schema.run import Counters

HISTORY_ENTRIES = 200_000
"""Events kept for the snapshot, as on a real device."""

STACK_DEPTH = 12
"""User frames kept of each allocation, innermost first."""

OUTSIDE_BYTES = 450 << 20
"""What a CUDA context and its libraries take of a card besides the allocator's memory: about 300 to
600 MiB.
"""

Stack = tuple[dict[str, Any], ...]


class RehearsedMemory:
    """Follows storages of the shadow through :class:`CachingAllocator`.

    A storage may be freed while one is being allocated (the garbage collector runs when it likes),
    so frees are queued and done before the next allocation.
    """

    def __init__(self, total_bytes: int, frames: Frames, folder: Path) -> None:
        variables = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
        text = next((os.environ[name] for name in variables if os.environ.get(name)), "")
        self._total = total_bytes
        outside = min(OUTSIDE_BYTES, total_bytes // 8)
        self.allocator = CachingAllocator(
            total_bytes,
            settings=AllocatorSettings.parse(text),
            outside_bytes=outside,
            history_limit=HISTORY_ENTRIES,
        )
        self._frames = frames
        self._folder = folder
        self.keeps_stacks = True
        """False when the snapshot is written: who allocates what later on is not asked."""
        self.workspaces: list[int] = []
        """Addresses of what torch keeps for matrix products."""
        self._addresses: dict[int, int] = {}
        self._freed: deque[int] = deque()
        self._stacks: dict[tuple[tuple[Any, int], ...], Stack] = {}

    def allocated(self, storage: int, nbytes: int) -> None:
        """A storage appeared. Raises ``torch.OutOfMemoryError`` where the card is full."""
        self._addresses[storage] = self._malloc(nbytes)

    def workspace(self, nbytes: int, *, kept: bool) -> None:
        """Torch took memory for matrix products; raises as :meth:`allocated`."""
        address = self._malloc(nbytes)
        if kept:
            self.workspaces.append(address)
        else:
            self.allocator.free(address)

    @property
    def workspace_bytes(self) -> int:
        """What torch keeps for matrix products."""
        kept = set(self.workspaces)
        return sum(block.size for block in self.allocator.blocks() if block.address in kept)

    def _malloc(self, nbytes: int) -> int:
        self.settle()
        stream = current_stream().cuda_stream
        try:
            stack = self._stack() if self.keeps_stacks else ()
            return self.allocator.malloc(nbytes, stream, stack)
        except OutOfMemory as error:
            self.dump(OOM_SNAPSHOT)
            raise torch.OutOfMemoryError(str(error)) from None

    def freed(self, storage: int) -> None:
        """A storage is gone."""
        self._freed.append(storage)

    def address(self, storage: int) -> int:
        """Where a storage lies; 0 where it is not on the device."""
        self.settle()  # the name of a storage that is gone may belong to another one now
        return self._addresses.get(storage, 0)

    def settle(self) -> None:
        """Do the frees that are due."""
        while self._freed:
            address = self._addresses.pop(self._freed.popleft(), 0)
            if address:
                self.allocator.free(address)

    def counters(self) -> Counters:
        """The allocator's counters as the ``steps`` part has them, in bytes."""
        stats = self.stats()
        return {
            "allocated": stats["allocated_bytes.all.current"],
            "reserved": stats["reserved_bytes.all.current"],
            "peak_allocated": stats["allocated_bytes.all.peak"],
            "peak_reserved": stats["reserved_bytes.all.peak"],
            "retries": stats["num_alloc_retries"],
            "ooms": stats["num_ooms"],
        }

    def stats(self) -> dict[str, int]:
        """As ``torch.cuda.memory_stats``."""
        self.settle()
        return self.allocator.stats()

    @property
    def total_bytes(self) -> int:
        """Bytes of the card."""
        return self.allocator.total_bytes

    def resize(self, total_bytes: int | None) -> int:
        """Let the card have so many bytes, or those that it began with; returns how many of them an
        allocator can have.
        """
        if total_bytes is None:
            self.empty_cache()
        return self.allocator.resize(self._total if total_bytes is None else total_bytes)

    def reset_peak(self) -> None:
        """As ``torch.cuda.reset_peak_memory_stats``."""
        self.settle()
        self.allocator.reset_peak()

    def empty_cache(self) -> None:
        """As ``torch.cuda.empty_cache``."""
        self.settle()
        self.allocator.empty_cache()

    def snapshot(self) -> dict[str, Any]:
        """As ``torch.cuda.memory._snapshot``."""
        self.settle()
        return self.allocator.snapshot()

    def dump(self, name: str = SNAPSHOT) -> None:
        """Write a snapshot in torch's own schema."""
        write_whole(self._folder / name, self.snapshot())

    def _stack(self) -> Stack:
        """The user's frames, innermost first; one object for each distinct stack."""
        frames = self._frames.user_frames(sys._getframe(3), STACK_DEPTH)
        key = tuple([(each.f_code, each.f_lineno) for each in frames])
        stack = self._stacks.get(key)
        if stack is None:
            stack = self._stacks[key] = tuple(
                {
                    "filename": self._frames.spelled(code.co_filename),
                    "line": line,
                    "name": code.co_name,
                }
                for code, line in key
            )
        return stack
