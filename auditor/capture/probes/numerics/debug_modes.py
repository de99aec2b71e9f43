"""Debugging modes left on: anomaly detection, which can be held off, and profilers."""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd import anomaly_mode, profiler

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.instruments.torch_private.autograd import compiler_traces, profiler_is_on
from auditor.capture.instruments.torch_private.training import PREPARE
from auditor.capture.probes.base import Context, Probe
from auditor.recordings.schema.numerics import ModeRow

_set_anomaly, _anomaly_on, _anomaly_checks_nan = (
    torch.set_anomaly_enabled,
    torch.is_anomaly_enabled,
    torch.is_anomaly_check_nan_enabled,
)
"""Torch's own, whatever takes their place in the pass ``anomaly_off``."""


class DebugModesProbe(Probe):
    """Writes ``modes``; tells the session what it must know about them and profilers.

    Where anomaly mode was switched on is remembered from the start (it is often done at import).
    ``detect_anomaly`` is hooked where it is entered, not where it is made: its constructor warns
    and counts stack levels.
    """

    name = "modes"
    passes = frozenset({"warmup", "quiet", "anomaly_off", "trace", "loud"})
    always = True
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.anomaly_seen = False
        """A backward of a step ran under anomaly mode."""
        self.on_user_profiler: Callable[[], None] = lambda: None
        """Called right before the user's profiler starts: it would silently end ours."""
        self._own = False
        self._profiler_in_step = False
        self._site: int | None = None
        self._site_before: weakref.WeakKeyDictionary[Any, int | None] = weakref.WeakKeyDictionary()
        self._anomaly: Counter[int | None] = Counter()

    @property
    def user_profiler_seen(self) -> bool:
        """A profiler of the user's ran in a step, or runs now: ask before ours starts."""
        return self._profiler_in_step or bool(profiler_is_on())

    @contextlib.contextmanager
    def own(self) -> Iterator[None]:
        """Profilers that start in this block are ours."""
        before, self._own = self._own, True
        try:
            yield
        finally:
            self._own = before

    def install(self) -> None:
        detect, switch = anomaly_mode.detect_anomaly, anomaly_mode.set_detect_anomaly
        self._always.around(detect, "__enter__", before=lambda mode: self._switched(mode, on=True))
        self._always.around(detect, "__exit__", before=self._switched_back)
        self._always.around(switch, "__init__", before=self._set_to)
        self._always.around(switch, "__exit__", before=self._switched_back)
        # Every start of torch.profiler and torch.autograd.profiler prepares a trace first, a
        # schedule's later cycles too.
        self._always.around(profiler.profile, PREPARE, before=self._profiler_starts)

    def start(self) -> None:
        """Count backward calls; in the pass ``anomaly_off`` keep the mode off."""
        self._anomaly.clear()
        super().start()
        if self.context.pass_name == "anomaly_off":
            self._hold_off()

    def step_end(self) -> None:
        for at, n in self._anomaly.items():
            self.context.add(ModeRow(what="anomaly", at=at, n=n))
        self._anomaly.clear()

    # -- anomaly mode ------------------------------------------------------------------------------

    def backward_begins(self, call: Backward) -> None:
        if _anomaly_on() and self.context.in_step and not call.nested and not compiler_traces():
            self.anomaly_seen = True
            self._anomaly[self._site] += 1

    def _switched(self, mode: Any, *, on: bool) -> None:
        self._site_before[mode] = self._site
        self._site = self.context.frames.here() if on else None

    def _set_to(self, switch: Any, /, *args: Any, **kwargs: Any) -> None:
        self._switched(switch, on=bool(kwargs.get("mode", args[0] if args else False)))

    def _switched_back(self, mode: Any, *_: object) -> None:
        self._site = self._site_before.pop(mode, None)

    def _hold_off(self) -> None:
        """The user's program sees the mode that it asked for; the engine sees none."""
        wanted = [_anomaly_on(), _anomaly_checks_nan()]

        def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
            wanted[:] = bool(enabled), bool(check_nan)

        self._patches.on_undo(lambda: _set_anomaly(*wanted))
        self._patches.attribute(torch, "set_anomaly_enabled", set_anomaly_enabled)
        self._patches.attribute(torch, "is_anomaly_enabled", lambda: wanted[0])
        self._patches.attribute(torch, "is_anomaly_check_nan_enabled", lambda: wanted[1])
        _set_anomaly(False)

    # -- profilers ---------------------------------------------------------------------------------

    def _profiler_starts(self, *_: object) -> None:
        if self._own:
            return
        self._profiler_in_step |= self.context.in_step
        self.on_user_profiler()
