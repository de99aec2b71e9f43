"""What a report says first of a run that ran out of memory, and of saved checkpoints. Standard
library only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RanOut:
    """Memory ran out, in bytes; None where nothing tells it.

    ``limit`` is what the device has, or what the run was given of it. ``requested`` is what a tensor
    needed, ``segment`` what the allocator then asked of the device, of which ``free`` were left:
    ``short`` were missing. ``fits`` are the allocator settings under which a replay of the same
    allocations fits, of ``tried`` ones.
    """

    limit: int | None
    in_use: int
    reserved: int
    requested: int | None
    segment: int | None
    free: int | None
    short: int | None
    fits: tuple[str, ...] = ()
    tried: int = 0


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that was scanned: whether training can go on from it, and what it holds.
    ``latest`` is the last good one of all, ``verdict`` says in words why another is not: ``damaged``,
    ``refused`` by torch or ``not looked at``.
    """

    name: str
    good: bool
    said: str
    latest: bool = False
    verdict: str = ""
