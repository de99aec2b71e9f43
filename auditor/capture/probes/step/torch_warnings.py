"""What torch warns of, with the user's line, on every step of the diagnostic pass."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from auditor.capture.instruments.warning_hook import WarningHook, calling_frame
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.optim.grad_clipping import watch_clipping
from auditor.recordings.schema.run import TorchWarningRow

EMPTY = "empty clipping"

LONGEST = 400
"""Characters of a text that are kept."""


class TorchWarningsProbe(Probe):
    """Writes ``torch_warnings``. Listens from the start (torch warns once of a schedule's first
    step, and of an optimizer when it is made); in the loud pass torch repeats itself.
    """

    name = "torch_warnings"
    parts = ("torch_warnings",)
    passes = frozenset({"warmup", "quiet", "loud"})
    always = True
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._hook = WarningHook(self.guarded(self._heard))
        self._listens = True
        self._seen: Counter[tuple[int, str, str]] = Counter()

    def install(self) -> None:
        """Listen, whatever filters the program's own files set from now on."""
        self._hook.place()
        for name in ("filterwarnings", "simplefilter", "resetwarnings"):
            self._always.around(warnings, name, after=self._filters_set)

    def start(self) -> None:
        """In the loud pass what torch says once is said each time."""
        super().start()
        self._listens = True
        if self.context.pass_name == "loud":
            before = torch.is_warn_always_enabled()
            self._patches.on_undo(lambda: torch.set_warn_always(before))
            torch.set_warn_always(True)
            watch_clipping(self._patches, self._clips)

    def step_begin(self) -> None:
        """The program may have set filters of its own."""
        super().step_begin()
        self._hook.place()

    def step_end(self) -> None:
        for (at, name, text), n in self._seen.items():
            self.context.add(TorchWarningRow(at=at, name=name, text=text, n=n))
        self._seen.clear()

    def stop(self) -> None:
        super().stop()
        self._listens = False

    def uninstall(self) -> None:
        super().uninstall()
        self._hook.remove()

    def _filters_set(self, *_: Any, **__: Any) -> None:
        caller = calling_frame(sys._getframe(1))
        if self.context.frames.is_user(caller.f_code.co_filename):
            self._hook.place()

    def _clips(self, parameters: Sequence[torch.Tensor], _: torch.Tensor) -> None:
        """Of an iterator that is no generator (``filter``) and has nothing left torch says nothing."""
        at = None if parameters else self.context.frames.here()
        if at is not None and not any(key[:2] == (at, EMPTY) for key in self._seen):
            self._seen[at, EMPTY, "clip_grad_norm_() was given no parameters"] += 1

    def _heard(self, name: str, text: str) -> None:
        at = self.context.frames.here() if self._listens else None
        if at is not None:
            self._seen[at, name, " ".join(text[:LONGEST].split())] += 1
