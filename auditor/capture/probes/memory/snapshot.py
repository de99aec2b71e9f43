"""CUDA memory snapshots: allocation history for a few steps, and the state at an OOM."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from auditor.capture.instruments.torch_private import cuda
from auditor.capture.probes.base import Context
from auditor.errors import words_of
from auditor.recordings.writer import Spelled

SNAPSHOT = "snapshot.pickle"
OOM_SNAPSHOT = "oom_snapshot.pickle"
HISTORY_ENTRIES = 200_000


class MemoryHistory:
    """From ``start`` to ``stop``, which writes ``snapshot.pickle`` (torch's own schema)."""

    def __init__(self, context: Context, folder: Path) -> None:
        self._context = context
        self._folder = folder
        self._on = False
        self._ours = False

    def start(self) -> None:
        """Begin to record allocations with Python stacks. A user's own history goes on."""
        try:
            self._ours = not cuda.history_is_on()
            if self._ours:
                cuda.record_history(max_entries=HISTORY_ENTRIES, stacks="python")
            self._on = True
        except RuntimeError as error:  # cudaMallocAsync and pluggable allocators have none
            self._context.warn(f"no memory snapshot was taken: {str(error).partition(chr(10))[0]}")

    def stop(self) -> None:
        if not self._on:
            return
        self._on = False
        try:
            dump(self._folder / SNAPSHOT, self._context.writer.spelled)
        finally:
            if self._ours:
                cuda.record_history(enabled=None)


def in_use() -> bool:
    """Whether the device was used: before that there is no allocator whose history could begin."""
    return bool(torch.cuda.is_initialized())


def record_from_the_start(warn: Callable[[str], None]) -> None:
    """Record allocations with Python stacks from the first use of the device on, for the rest of
    this process: the first step finds the history running and keeps it.
    """

    def record() -> None:
        try:
            if not cuda.history_is_on():
                cuda.record_history(max_entries=HISTORY_ENTRIES, stacks="python")
        except RuntimeError as error:  # cudaMallocAsync and pluggable allocators have none
            warn(f"no allocation history was recorded: {str(error).partition(chr(10))[0]}")

    if cuda.when_initialized is not None:
        cuda.when_initialized(record)


def dump(path: Path, spelled: Spelled | None = None) -> None:
    """Write the allocator's state; plain containers only, so that it can be read without trusting
    it.

    Files stand in it as ``spelled`` says.
    """
    state = cuda.take_snapshot()
    write_whole(path, state if spelled is None else _with_files(state, spelled))


def write_whole(path: Path, state: Any) -> None:
    """Write a snapshot whole, or not at all."""
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("wb") as file:
            pickle.dump(state, file)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _with_files(state: Any, spelled: Spelled) -> Any:
    """The snapshot with all file names of its stacks mapped by ``spelled``."""
    if isinstance(state, dict):
        return {
            key: spelled(each)
            if key == "filename" and isinstance(each, str)
            else _with_files(each, spelled)
            for key, each in state.items()
        }
    return [_with_files(each, spelled) for each in state] if isinstance(state, list) else state


def watch_oom(folder: Path, spelled: Spelled | None = None) -> Callable[[], None]:
    """Write ``oom_snapshot.pickle`` when memory runs out; returns how to stop doing so."""
    attach = cuda.attach_oom_observer
    if attach is None:
        return lambda: None
    armed = [True]

    def observe(device: int, alloc: int, device_alloc: int, device_free: int) -> None:
        if armed[0]:
            armed[0] = False  # the first one tells; retries would overwrite it
            # what an observer raises takes the place of the OutOfMemoryError
            with contextlib.suppress(Exception):
                dump(folder / OOM_SNAPSHOT, spelled)

    torch.cuda.init()  # type: ignore[no-untyped-call]  # before that there is no allocator to attach to
    # cudaMallocAsync and pluggable allocators take no observers
    with contextlib.suppress(RuntimeError):
        attach(observe)

    def disarm() -> None:
        armed[0] = False  # observers cannot be detached: this one does nothing any more

    return disarm


def limit_memory(limit: int | None) -> None:
    """Let torch's allocator take at most ``limit`` bytes of the current device."""
    if limit is not None:
        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))


def is_oom(error: BaseException) -> bool:
    """True for ``torch.OutOfMemoryError`` and ``MemoryError``."""
    known = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return known or any(words in words_of(error) for words in _OOM_WORDS)


_OOM_WORDS = ("can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""Words of plain RuntimeErrors: of the CPU's allocator, CUDA or cuBLAS out of memory."""
