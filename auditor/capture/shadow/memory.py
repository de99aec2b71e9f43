"""The memory functions of ``torch.cuda``: bytes of the storages that live on the shadow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from auditor.capture.shadow.current import Current, tell

_Hook = Callable[..., Any]


def _reset_peak(playing: Current) -> None:
    playing.peak_bytes = playing.live_bytes


def _statistics(playing: Current) -> dict[str, int]:
    """The keys of ``torch.cuda.memory_stats`` that programs read; what is not modelled is 0."""
    names = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "inactive_split_bytes")
    stats: dict[str, int] = {}
    for name in names:
        modelled = name != "inactive_split_bytes"
        stats[f"{name}.all.current"] = playing.live_bytes if modelled else 0
        stats[f"{name}.all.peak"] = playing.peak_bytes if modelled else 0
        stats[f"{name}.all.allocated"] = stats[f"{name}.all.freed"] = 0
    stats.update(dict.fromkeys(("num_alloc_retries", "num_ooms", "num_sync_all_streams"), 0))
    return stats


def _told(operator: str, does: _Hook, *, blocking: bool = False) -> _Hook:
    def hook(*args: Any, **kwargs: Any) -> Any:
        tell("allocator", operator, blocking=blocking)
        return does()

    return hook


def _housekeeping(playing: Current, module: str) -> dict[str, _Hook]:
    """Calls that cost something: each is a crossing. ``empty_cache`` waits, since cudaFree does."""
    return {
        "empty_cache": _told(f"{module}.empty_cache", lambda: None, blocking=True),
        "reset_peak_memory_stats": _told(f"{module}.reset_peak_memory_stats", lambda: _reset_peak(playing)),
        "reset_accumulated_memory_stats": _told(f"{module}.reset_accumulated_memory_stats", lambda: None),
        "memory_stats": _told(f"{module}.memory_stats", lambda: _statistics(playing)),
        "memory_allocated": lambda *args, **kwargs: playing.live_bytes,
        "max_memory_allocated": lambda *args, **kwargs: playing.peak_bytes,
        "memory_reserved": lambda *args, **kwargs: playing.live_bytes,
        "max_memory_reserved": lambda *args, **kwargs: playing.peak_bytes,
    }


def cuda_functions(playing: Current) -> dict[str, _Hook]:
    """For ``torch.cuda``."""
    total = playing.gpu.total_bytes
    return {
        **_housekeeping(playing, "torch.cuda"),
        "ipc_collect": _told("torch.cuda.ipc_collect", lambda: None, blocking=True),
        "reset_max_memory_allocated": _told("torch.cuda.reset_max_memory_allocated", lambda: _reset_peak(playing)),
        "reset_max_memory_cached": _told("torch.cuda.reset_max_memory_cached", lambda: _reset_peak(playing)),
        "memory_cached": lambda *args, **kwargs: playing.live_bytes,
        "max_memory_cached": lambda *args, **kwargs: playing.peak_bytes,
        "memory_summary": _told("torch.cuda.memory_summary", lambda: f"allocated {playing.live_bytes} of {total} bytes"),
        "memory_snapshot": _told("torch.cuda.memory_snapshot", list),
        "mem_get_info": _told("torch.cuda.mem_get_info", lambda: (total - playing.live_bytes, total)),
        "set_per_process_memory_fraction": lambda *args, **kwargs: None,
        "get_per_process_memory_fraction": lambda *args, **kwargs: 1.0,
    }


def accelerator_functions(playing: Current) -> dict[str, _Hook]:
    """For ``torch.accelerator``."""
    info = _told(
        "torch.accelerator.get_memory_info", lambda: (playing.gpu.total_bytes - playing.live_bytes, playing.gpu.total_bytes)
    )
    return {**_housekeeping(playing, "torch.accelerator"), "get_memory_info": info}
