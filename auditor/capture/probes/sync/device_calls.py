"""Calls of the user's that make host, device or allocator stand still: ``empty_cache``,
``synchronize``, ``gc.collect`` ...
"""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from auditor.capture.instruments.torch_files import TORCH
from auditor.capture.instruments.user_frames import OWN
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.step.clock import RunQueue
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


class DeviceCallsProbe(Probe):
    """Writes ``calls``.

    The functions' code is swapped in place, so aliases taken before (``from torch.cuda import
    empty_cache``, class attributes, defaults) are seen too. ``gc.collect`` is a builtin: it is
    replaced in ``gc`` and where user modules hold it. ``synchronize`` of an event or a stream
    counts where the host has something to wait for (:func:`_waits`).
    """

    name = "calls"
    parts = ("calls",)
    passes = frozenset({"quiet", "loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._inside = False
        self._queue = RunQueue()
        self._rows: dict[tuple[int, str], list[float]] = {}

    def start(self) -> None:
        self._rows.clear()
        super().start()
        for module in (torch.cuda, torch.accelerator):  # the latter's memory functions since 2.9
            for name in (*CUDA_CALLS, *ALIASES):
                function = getattr(module, name, None)
                if isinstance(function, types.FunctionType) and not function.__code__.co_freevars:
                    self._patches.code(function, self._hook(ALIASES.get(name, name)))
        self._replace_collect()
        for name in ("Event", "Stream"):
            self._replace_synchronize(getattr(torch.cuda, name), f"{name}.synchronize")

    def stop(self) -> None:
        super().stop()
        self._queue.close()

    def step_end(self) -> None:
        for (at, name), (n, us) in self._rows.items():
            self.context.add(CallRow(at=at, name=name, n=int(n), us=us))
        self._rows.clear()

    def _replace_collect(self) -> None:
        original, hook = gc.collect, self._hook("gc.collect")

        def collect(*args: Any, **kwargs: Any) -> Any:
            return hook(original, *args, **kwargs)

        self._patches.builtin(gc, "collect", collect, self.context.frames.user_modules())

    def _replace_synchronize(self, owner: type, name: str) -> None:
        original, hook = owner.synchronize, self._hook(name)  # type: ignore[attr-defined]

        @functools.wraps(original)
        def synchronize(waited_for: Any) -> Any:
            # torch's own limit its queues so
            by_user = self.context.frames.is_user(sys._getframe(1).f_code.co_filename)
            return (
                hook(original, waited_for)
                if by_user and _waits(waited_for)
                else original(waited_for)
            )

        self._patches.attribute(owner, "synchronize", synchronize)

    def _hook(self, name: str) -> Callable[..., Any]:
        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            # memory_summary calls memory_stats: only the outermost call is the user's.
            at = None if self._inside else self._user_site()
            if at is None:
                return original(*args, **kwargs)
            self._inside = True
            totals = self._rows.setdefault((at, name), [0, 0.0])
            totals[0] += 1  # before the call: without a GPU several of these raise
            start = self._queue.mark()
            try:
                return original(*args, **kwargs)
            finally:
                totals[1] += self._queue.own_us(start)
                self._inside = False

        return hook

    def _user_site(self) -> int | None:
        """Site of the caller if nobody but torch stands between the user's line and the call."""
        if not self.in_step:  # calls of other threads are not the step's doing
            return None
        frame: FrameType | None = sys._getframe(1)
        via: FrameType | None = None
        while frame is not None:
            file = frame.f_code.co_filename
            if self.context.frames.is_user(file):
                return self.context.frames.number(frame, via)
            if file.startswith(TORCH):
                via = via or frame
            elif not file.startswith(OWN) and not file.startswith("<"):
                return None
            frame = frame.f_back
        return None


def _waits(waited_for: Any) -> bool:
    """Whether ``synchronize()`` of this event or stream makes the host wait.

    One that an earlier step recorded (a copy that is read a step late) has happened by then. In a
    rehearsal everything has: there it counts if it would wait for all the work that was queued.
    """
    ends_now = getattr(waited_for, "ends_now", None)
    if ends_now is not None:
        return bool(ends_now())
    return not waited_for.query()
