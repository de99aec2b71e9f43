"""Calls of ``torch.save`` in the step: how long the step stood still, and what was written over."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any, cast

import torch

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.instruments.torch_private.compiler import HELD
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.graph.call_paths import path_of
from auditor.capture.probes.step.clock import RunQueue
from auditor.recordings.schema.data import SaveRow

DEEP = 3
"""Dictionaries in dictionaries that are looked into."""


class TorchSaveProbe(Probe):
    """Writes ``saves``. Its code is swapped in place, so that names taken before count."""

    name = "saves"
    parts = ("saves",)
    passes = frozenset({"quiet"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._queue = RunQueue()
        self._looked: set[int] = set()

    def start(self) -> None:
        self._looked.clear()
        super().start()
        self._patches.code(cast("FunctionType", torch.save), self._save)

    def stop(self) -> None:
        super().stop()
        self._queue.close()

    def _save(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        here = self.in_step  # a save on another thread does not hold it
        at = self.context.frames.here() if here else None
        if at is None:
            return original(*args, **kwargs)
        stack = list(path_of(self.context.frames))
        file = args[1] if len(args) > 1 else kwargs.get("f")
        path = None
        if isinstance(file, (str, bytes, os.PathLike)):
            path = os.path.abspath(os.fsdecode(file))
        replaced = path is not None and _size(path) > 0
        start = self._queue.mark()
        result = original(*args, **kwargs)
        us = self._queue.own_us(start)
        size = None if path is None else _size(path)
        row = SaveRow(at=at, us=us, path=path, replaced=replaced, bytes=size, stack=stack)
        row.compiled = self._compiled(at, args[0] if args else kwargs.get("obj"))
        self.context.add(row)
        return result

    def _compiled(self, at: int, saved: Any) -> str:
        """A name in it of a compiled module; empty if it has none, or the line was asked."""
        if at in self._looked or not COMPILED_CODE.tells_of_calls:
            return ""
        self._looked.add(at)
        try:
            return next((name for name in _named(saved) if HELD in name.split(".")), "")
        except Exception as error:  # a mapping of the user's
            self.missed(error)
            return ""


def _named(saved: Any, deep: int = DEEP) -> Iterator[str]:
    """Names of tensors in dictionaries."""
    if not isinstance(saved, Mapping):
        return
    for name, value in saved.items():
        if isinstance(value, torch.Tensor) and isinstance(name, str):
            yield name
        elif deep > 1:
            yield from _named(value, deep - 1)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
