"""Calls on the step's own thread that wait until files are on storage: ``os.fsync`` and the
``flush`` of TensorBoard's writer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable
from typing import Any

from auditor.capture.probes.graph.call_paths import path_of
from auditor.capture.probes.tally import Tally
from auditor.recordings.schema.data import SyncedRow

SYNCS = ("fsync", "fdatasync")

WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX.writer")


class StorageSyncsProbe(Tally):
    """Writes ``synced``. The functions of ``os`` are builtins: they are replaced there, and where
    user modules hold them.
    """

    row = SyncedRow

    def watch(self) -> None:
        for name in SYNCS:
            if hasattr(os, name):
                timed = self.around(getattr(os, name), self._led_to, name=f"os.{name}")
                self._patches.builtin(os, name, timed, self.context.frames.user_modules())
        for name in WRITERS:
            writer = getattr(sys.modules.get(name), "SummaryWriter", None)
            if isinstance(writer, type) and "flush" in vars(writer):
                flush = self.around(vars(writer)["flush"], self._led_to, name="SummaryWriter.flush")
                self._patches.attribute(writer, "flush", flush)

    def _led_to(self, *_: Any, **__: Any) -> dict[str, Hashable]:
        return {"stack": path_of(self.context.frames)}
