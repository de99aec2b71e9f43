"""Calls on the step's own thread that wait until files are on storage: ``os.fsync`` and the
``flush`` of TensorBoard's writer.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.graph.call_paths import path_of
from auditor.capture.probes.step.clock import RunQueue
from auditor.recordings.schema.data import SyncedRow

SYNCS = ("fsync", "fdatasync")

WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX.writer")


class StorageSyncsProbe(Probe):
    """Writes ``synced``. The functions of ``os`` are builtins: they are replaced there, and where
    user modules hold them.
    """

    name = "synced"
    parts = ("synced",)
    passes = frozenset({"quiet"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._inside = False
        self._queue = RunQueue()
        self._rows: dict[tuple[int, str, tuple[int, ...]], list[float]] = {}

    def start(self) -> None:
        self._rows.clear()
        super().start()
        for name in SYNCS:
            if hasattr(os, name):
                timed = self._timed(getattr(os, name), f"os.{name}")
                self._patches.builtin(os, name, timed, self.context.frames.user_modules())
        for name in WRITERS:
            writer = getattr(sys.modules.get(name), "SummaryWriter", None)
            if isinstance(writer, type) and "flush" in vars(writer):
                self._patches.attribute(
                    writer, "flush", self._timed(vars(writer)["flush"], "SummaryWriter.flush")
                )

    def stop(self) -> None:
        super().stop()
        self._queue.close()

    def step_end(self) -> None:
        for (at, name, stack), (n, us) in self._rows.items():
            self.context.add(SyncedRow(at=at, name=name, n=int(n), us=us, stack=list(stack)))
        self._rows.clear()

    def _timed(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            at = self._here()
            if at is None:
                return original(*args, **kwargs)
            self._inside = True
            key = (at, name, tuple(path_of(self.context.frames)))
            start = self._queue.mark()
            try:
                return original(*args, **kwargs)
            finally:
                total = self._rows.setdefault(key, [0, 0.0])
                total[0] += 1
                total[1] += self._queue.own_us(start)
                self._inside = False

        return timed

    def _here(self) -> int | None:
        """The user's line; None of a call that is not the step's, or inside another such call."""
        if self._inside or not self.in_step:  # what other threads wait for does not hold it
            return None
        return self.context.frames.here()
