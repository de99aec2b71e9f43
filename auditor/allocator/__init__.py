"""A simulation of torch's CUDA caching allocator: what a program would hold on a card."""

from auditor.allocator.caching import CachingAllocator, OutOfMemory, Shortage
from auditor.allocator.replay import AllocatorReplay, History, replay
from auditor.allocator.settings import AllocatorSettings

__all__ = [
    "AllocatorReplay",
    "AllocatorSettings",
    "CachingAllocator",
    "History",
    "OutOfMemory",
    "Shortage",
    "replay",
]
