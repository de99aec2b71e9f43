"""What a rank saves, in all passes, for a comparison with the other ranks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.probes.base import Context, Probe
from .saved_digest import digest_of, several_here
from ..rows import RankSaveRow

MOST = 64
"""Saves of a run that are looked at."""


class RankSavesProbe(Probe):
    """Writes ``rank_saves``. The function's code is swapped from the start: a save is rare, and may
    fall into any pass.
    """

    name = "rank_saves"
    parts = ("rank_saves",)
    passes = frozenset({"quiet"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._looked = 0
        self._note = self.guarded(self._look)

    def install(self) -> None:
        """Swap the function."""
        self.context.writer.touch("rank_saves")
        self._always.code(cast("FunctionType", torch.save), self._save)

    def _save(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        result = original(*args, **kwargs)
        self._note((time.perf_counter() - begin) * 1e6, args, kwargs)
        return result

    def _look(self, us: float, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._looked >= MOST or threading.current_thread() is not threading.main_thread():
            return
        if not several_here() or self.context.device.null or self.context.writer.forked:
            return
        at = self.context.frames.here()
        if at is None:
            return
        self._looked += 1
        file = args[1] if len(args) > 1 else kwargs.get("f")
        row = RankSaveRow(at=at, us=us, digest=digest_of(args[0] if args else kwargs.get("obj")))
        if isinstance(file, (str, bytes, os.PathLike)):
            row.path = os.path.abspath(os.fsdecode(file))
            row.bytes = os.path.getsize(row.path)
        self.context.add(row)
