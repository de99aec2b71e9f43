"""Collectives that the program calls itself."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.probes.base import Context, Probe
from auditor.recordings.schema import CollectiveRow

FUNCTIONS = ("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "barrier")
"""Functions of ``torch.distributed`` that are counted."""


@dataclass
class _Calls:
    """Of one line in one step."""

    n: int = 0
    nbytes: int = 0
    us: float = 0.0


class CollectivesProbe(Probe):
    """Writes ``collectives``. The functions are replaced from the start, since a program takes them
    by name (``from torch.distributed import barrier``); only in the instrumented pass are they
    counted.
    """

    name = "collectives"
    parts = ("collectives",)
    passes = frozenset({"loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._always = Patches(self.missed)
        self._calls: dict[tuple[int, str], _Calls] = {}
        self._on = self._inside = False
        self._thread = 0

    def install(self) -> None:
        """Stand in the place of each function, wherever torch itself shows it."""
        if not dist.is_available():
            return
        for name in FUNCTIONS:
            original = getattr(dist, name)
            counted = self._counted(name, original)
            for owner in (dist, dist.distributed_c10d):
                if vars(owner).get(name) is original:
                    self._always.attribute(owner, name, counted)

    def uninstall(self) -> None:
        """Put the functions back."""
        self._always.undo()

    def start(self) -> None:
        """Count, where there are several ranks."""
        self.context.writer.touch("collectives")
        self._calls.clear()
        self._on = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

    def stop(self) -> None:
        """Count no longer."""
        self._on = False

    def step_begin(self) -> None:
        """The step runs on this thread."""
        self._thread = threading.get_ident()

    def step_end(self) -> None:
        """Write the step's rows."""
        for (at, what), calls in self._calls.items():
            row = CollectiveRow(at=at, what=what, n=calls.n, bytes=calls.nbytes, us=calls.us)
            row.ranks = dist.get_world_size()
            self.context.add(row)
        self._calls.clear()

    def _counted(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        note = self.guarded(self._note)

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            counts = self._on and self.context.in_step and not self._inside
            if not counts or threading.get_ident() != self._thread:
                return original(*args, **kwargs)
            self._inside = True
            begin = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                self._inside = False
                note(name, (time.perf_counter() - begin) * 1e6, args, kwargs)

        return counted

    def _note(self, name: str, us: float, args: Any, kwargs: Any) -> None:
        at = self.context.frames.here()
        if at is None:
            return
        calls = self._calls.setdefault((at, name), _Calls())
        calls.n += 1
        calls.us += us
        given = (*args, *kwargs.values())
        calls.nbytes += sum(each.nbytes for each in given if isinstance(each, torch.Tensor))
