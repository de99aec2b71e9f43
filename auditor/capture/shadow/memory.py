"""The memory functions of ``torch.cuda``: answered by the listener's allocator, or by the bytes of
the storages that live.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from auditor.allocator.ledger import EVENTS
from auditor.capture.shadow.crossing import Memory
from auditor.capture.shadow.current import Current, tell

_Hook = Callable[..., Any]


class LiveBytes:
    """Memory without an allocator: as much is reserved as lives."""

    def __init__(self, playing: Current) -> None:
        self._playing = playing

    @property
    def total_bytes(self) -> int:
        """Bytes of the card."""
        return self._playing.gpu.total_bytes

    def stats(self) -> dict[str, int]:
        """The keys of ``torch.cuda.memory_stats`` that programs read; what is not modelled is 0."""
        names = (
            "allocated_bytes",
            "reserved_bytes",
            "active_bytes",
            "requested_bytes",
            "inactive_split_bytes",
        )
        stats: dict[str, int] = dict.fromkeys(EVENTS, 0)
        for name in names:
            modelled = name != "inactive_split_bytes"
            stats[f"{name}.all.current"] = self._playing.live_bytes if modelled else 0
            stats[f"{name}.all.peak"] = self._playing.peak_bytes if modelled else 0
            stats[f"{name}.all.allocated"] = stats[f"{name}.all.freed"] = 0
        return stats

    def reset_peak(self) -> None:
        """The peak is what lives now."""
        self._playing.peak_bytes = self._playing.live_bytes

    def empty_cache(self) -> None:
        """Nothing is cached."""

    def snapshot(self) -> dict[str, Any] | None:
        """There is no allocator to take one of."""
        return None


def _told(operator: str, does: _Hook, *, blocking: bool = False) -> _Hook:
    def hook(*args: Any, **kwargs: Any) -> Any:
        tell("allocator", operator, blocking=blocking)
        return does()

    return hook


class Facade:
    """The functions of one module, by name."""

    def __init__(self, playing: Current, module: str) -> None:
        self._module = module
        self._memory: Memory = playing.listener.memory or LiveBytes(playing)

    def housekeeping(self) -> dict[str, _Hook]:
        """Costly calls: each is a crossing. ``empty_cache`` waits, since cudaFree does."""
        name, memory = self._module, self._memory
        return {
            "empty_cache": _told(f"{name}.empty_cache", memory.empty_cache, blocking=True),
            "reset_peak_memory_stats": _told(f"{name}.reset_peak_memory_stats", memory.reset_peak),
            "reset_accumulated_memory_stats": _told(
                f"{name}.reset_accumulated_memory_stats", lambda: None
            ),
            "memory_stats": _told(f"{name}.memory_stats", memory.stats),
            "memory_allocated": self._reads("allocated_bytes.all.current"),
            "max_memory_allocated": self._reads("allocated_bytes.all.peak"),
            "memory_reserved": self._reads("reserved_bytes.all.current"),
            "max_memory_reserved": self._reads("reserved_bytes.all.peak"),
        }

    def _reads(self, key: str) -> _Hook:
        return lambda *args, **kwargs: self._memory.stats()[key]

    def free_and_total(self) -> tuple[int, int]:
        """As ``torch.cuda.mem_get_info``."""
        total = self._memory.total_bytes
        return max(0, total - self._memory.stats()["reserved_bytes.all.current"]), total

    def summary(self) -> str:
        """In place of torch's table."""
        stats = self._memory.stats()
        allocated, reserved = (
            stats["allocated_bytes.all.current"],
            stats["reserved_bytes.all.current"],
        )
        return f"allocated {allocated}, reserved {reserved} of {self._memory.total_bytes} bytes"

    def segments(self) -> list[Any]:
        """As ``torch.cuda.memory_snapshot``."""
        snapshot = self._memory.snapshot()
        return [] if snapshot is None else list(snapshot["segments"])


def cuda_functions(playing: Current) -> dict[str, _Hook]:
    """For ``torch.cuda``."""
    facade = Facade(playing, "torch.cuda")
    known = facade.housekeeping()
    return {
        **known,
        "ipc_collect": _told("torch.cuda.ipc_collect", lambda: None, blocking=True),
        "reset_max_memory_allocated": known["reset_peak_memory_stats"],
        "reset_max_memory_cached": known["reset_peak_memory_stats"],
        "memory_cached": known["memory_reserved"],
        "max_memory_cached": known["max_memory_reserved"],
        "memory_summary": _told("torch.cuda.memory_summary", facade.summary),
        "memory_snapshot": _told("torch.cuda.memory_snapshot", facade.segments),
        "mem_get_info": _told("torch.cuda.mem_get_info", facade.free_and_total),
        "set_per_process_memory_fraction": lambda *args, **kwargs: None,
        "get_per_process_memory_fraction": lambda *args, **kwargs: 1.0,
    }


def accelerator_functions(playing: Current) -> dict[str, _Hook]:
    """For ``torch.accelerator``."""
    facade = Facade(playing, "torch.accelerator")
    return {
        **facade.housekeeping(),
        "get_memory_info": _told("torch.accelerator.get_memory_info", facade.free_and_total),
    }


def history_functions(playing: Current) -> dict[str, _Hook]:
    """For ``torch.cuda.memory``: the listener's allocator records anyway; empty without one."""
    memory = playing.listener.memory
    if memory is None:
        return {}

    def dump(filename: str = "dump_snapshot.pickle", *args: Any, **kwargs: Any) -> None:
        Path(filename).write_bytes(pickle.dumps(memory.snapshot()))

    return {
        "_record_memory_history": lambda *args, **kwargs: None,
        "_snapshot": lambda *args, **kwargs: memory.snapshot(),
        "_dump_snapshot": dump,
    }
