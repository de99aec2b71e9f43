"""Collectives that the program calls itself."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.tally import Counted

from ..rows import CollectiveCallRow, CollectiveRow

FUNCTIONS = ("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "barrier")
"""Functions of ``torch.distributed`` that are counted."""

LOGGED = 20_000
"""Calls that are written down: about 2 MB."""

AT_ONCE = 16
"""Calls of a step written before they are made, for 50 us each; more come at its end."""


class CollectivesProbe(Probe):
    """Writes ``collectives`` and ``collective_calls``. The functions are replaced from the start,
    since a program takes them by name (``from torch.distributed import barrier``). Each call over
    all ranks is written down before it is made: a rank that calls another one than the others
    waits there for ever. Only in the instrumented pass are they counted and timed.
    """

    name = "collectives"
    parts = ("collectives", "collective_calls")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._calls = Counted(context, CollectiveRow)
        self._inside = False
        self._logged = self._in_step = 0

    def install(self) -> None:
        """Stand in the place of each function, wherever torch itself shows it."""
        if not dist.is_available():
            return
        self.context.writer.touch("collective_calls")
        for name in FUNCTIONS:
            original = getattr(dist, name)
            counted = self._counted(name, original)
            for owner in (dist, dist.distributed_c10d):
                if vars(owner).get(name) is original:
                    self._always.attribute(owner, name, counted)

    def start(self) -> None:
        self.context.writer.touch("collectives")
        self._calls.clear()
        self.watching = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

    def step_begin(self) -> None:
        super().step_begin()
        self._in_step = 0

    def step_end(self) -> None:
        self._calls.write()

    def _counted(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        note, log = self.guarded(self._note), self.guarded(self._log)

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if self._inside or self._thread not in (0, threading.get_ident()):
                return original(*args, **kwargs)
            log(name, args, kwargs)
            counts = self.watching and self.context.in_step
            self._inside = True
            begin = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                self._inside = False
                if counts:
                    note(name, (time.perf_counter() - begin) * 1e6, args, kwargs)

        return counted

    def _log(self, name: str, args: Any, kwargs: Any) -> None:
        if self._logged >= LOGGED or not dist.is_initialized() or dist.get_world_size() < 2:
            return
        given = (*args, *kwargs.values())
        groups = [each for each in given if isinstance(each, dist.ProcessGroup)]
        if any(each is not dist.group.WORLD for each in groups):
            return  # of a part of the ranks
        at = self.context.frames.here()
        if at is None:
            return
        self._logged += 1
        row = CollectiveCallRow(at=at, what=name)
        row.total = self.context.global_step
        row.numbers = sum(each.numel() for each in given if isinstance(each, torch.Tensor))
        self.context.add(row)
        self._in_step += 1
        if self._in_step <= AT_ONCE:
            self.context.writer.flush()

    def _note(self, name: str, us: float, args: Any, kwargs: Any) -> None:
        at = self.context.frames.here()
        if at is None:
            return
        row = self._calls.of(at=at, what=name, ranks=dist.get_world_size())
        row.n += 1
        row.us += us
        given = (*args, *kwargs.values())
        row.bytes += sum(each.nbytes for each in given if isinstance(each, torch.Tensor))
