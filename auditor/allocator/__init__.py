"""A simulation of torch's CUDA caching allocator: what a program would hold on a card."""

from __future__ import annotations

from auditor.allocator.caching import CachingAllocator
from auditor.allocator.history import History
from auditor.allocator.oom import OutOfMemory, Shortage
from auditor.allocator.replay import Replayed, replay
from auditor.allocator.settings import AllocatorSettings

__all__ = [
    "AllocatorSettings",
    "CachingAllocator",
    "History",
    "OutOfMemory",
    "Replayed",
    "Shortage",
    "replay",
]
