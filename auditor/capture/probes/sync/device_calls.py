"""Calls that make host, device or allocator stand still: ``empty_cache``, ``gc.collect`` ..."""

import gc
import sys
import types
from collections.abc import Hashable
from types import FrameType
from typing import Any

import torch

from auditor.capture.instruments.plain_tensor import TORCH
from auditor.capture.instruments.user_frames import OWN, outwards
from auditor.capture.probes.tally import Tally
from auditor.recordings.schema.sync import CallRow

CUDA_CALLS = tuple(
    """
    reset_peak_memory_stats reset_accumulated_memory_stats empty_cache synchronize memory_stats
    memory_summary memory_snapshot mem_get_info max_memory_allocated memory_allocated
    memory_reserved max_memory_reserved ipc_collect
    """.split()
)

ALIASES = {
    "reset_max_memory_allocated": "reset_peak_memory_stats",
    "reset_max_memory_cached": "reset_peak_memory_stats",
}
"""Deprecated names of the same: torch's own do no more than call it."""


class DeviceCallsProbe(Tally):
    """Writes ``calls``. The builtin ``gc.collect`` is replaced in ``gc`` and user modules."""

    row = CallRow
    in_rehearsals = True

    def watch(self) -> None:
        for module in (torch.cuda, torch.accelerator):  # the latter's memory functions since 2.9
            for name in (*CUDA_CALLS, *ALIASES):
                function = getattr(module, name, None)
                if isinstance(function, types.FunctionType) and not function.__code__.co_freevars:
                    self._patches.code(function, self.hook(name=ALIASES.get(name, name)))
        collect = self.around(gc.collect, name="gc.collect")
        self._patches.builtin(gc, "collect", collect, self.context.frames.user_modules())
        for owner in (torch.cuda.Event, torch.cuda.Stream):
            name = f"{owner.__name__}.synchronize"
            waits = self.around(owner.synchronize, self._waits, name=name)
            self._patches.attribute(owner, "synchronize", waits)

    def at(self) -> int | None:
        """Nobody but torch may stand between the user's line and the call."""
        via: FrameType | None = None
        for frame in outwards(sys._getframe(1)):
            file = frame.f_code.co_filename
            if self.context.frames.is_user(file):
                return self.context.frames.number(frame, via)
            if file.startswith(TORCH):
                via = via or frame
            elif not file.startswith(OWN) and not file.startswith("<"):
                return None
        return None

    def _waits(self, waited_for: Any) -> dict[str, Hashable] | None:
        """None if ``synchronize()`` of this event or stream does not make the host wait.

        One that an earlier step recorded (a copy that is read a step late) has happened by then. In a
        rehearsal everything has: there it counts if it would wait for all the work that was queued.
        """
        caller = sys._getframe(1)
        while caller.f_code.co_filename.startswith(OWN) and caller.f_back is not None:
            caller = caller.f_back
        if not self.context.frames.is_user(caller.f_code.co_filename):
            return None  # torch's own limit its queues so
        ends_now = getattr(waited_for, "ends_now", None)
        waits = ends_now() if ends_now is not None else not waited_for.query()
        return {} if waits else None
