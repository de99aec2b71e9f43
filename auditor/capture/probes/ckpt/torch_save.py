"""Calls of ``torch.save`` in the step: how long the step stood still, and what was written over."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.graph.call_paths import path_of
from auditor.capture.probes.step.clock import RunQueue
from auditor.recordings.schema import SaveRow


class TorchSaveProbe(Probe):
    """Writes ``saves``. The function's code is swapped in place, so that names taken before are
    seen too.
    """

    name = "saves"
    parts = ("saves",)
    passes = frozenset({"quiet"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._patches = Patches()
        self._thread = 0
        self._queue = RunQueue()

    def start(self) -> None:
        """Swap the function."""
        self.context.writer.touch("saves")
        self._patches.code(cast("FunctionType", torch.save), self._save)

    def step_begin(self) -> None:
        """The step runs on this thread: a save on another one does not hold it."""
        self._thread = threading.get_ident()

    def stop(self) -> None:
        """Put it back."""
        self._patches.undo()
        self._queue.close()

    def _save(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        here = self.context.in_step and threading.get_ident() == self._thread
        at = self.context.frames.here() if here else None
        if at is None:
            return original(*args, **kwargs)
        stack = list(path_of(self.context.frames))
        path = _path(args[1] if len(args) > 1 else kwargs.get("f"))
        replaced = path is not None and _size(path) > 0
        start = self._queue.mark()
        result = original(*args, **kwargs)
        us = self._queue.own_us(start)
        size = None if path is None else _size(path)
        self.context.add(
            SaveRow(at=at, us=us, path=path, replaced=replaced, bytes=size, stack=stack)
        )
        return result


def _path(file: Any) -> str | None:
    """Where it goes to; None of a file that is open already, or a buffer."""
    return (
        os.path.abspath(os.fsdecode(file)) if isinstance(file, (str, bytes, os.PathLike)) else None
    )


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
