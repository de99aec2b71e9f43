"""Calls of modules with the time that they take, outside of backward."""

from __future__ import annotations

import time
from typing import Any, Generic, Protocol, TypeVar

from torch import nn
from torch.nn.modules import module as module_hooks

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.instruments.module_stack import keep_hooks
from auditor.capture.probes.base import Context, Probe


class Timed(Protocol):
    """What a probe remembers of calls that belong together."""

    us: float


S = TypeVar("S", bound=Timed)


class ForwardsProbe(Probe, Generic[S]):
    """A probe that is told of every module that the step calls, but for what a backward runs again.

    ``backwards`` counts those of the step so far; ``running`` are the calls that have not returned,
    outermost first; ``series`` is what the step's calls belong to, by a key of the probe's own.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.backwards = 0
        self.series: dict[Any, S] = {}
        self.running: list[tuple[Any, S | None, int]] = []
        self._walking = 0
        self._began_ns = self._backward_ns = self._walks_since_ns = 0

    def entered(self, module: nn.Module, args: Any) -> S | None:
        """What the call that begins belongs to; None where nobody asks for it."""
        raise NotImplementedError

    def left(self, series: S, output: Any) -> None:
        """A call that belongs to this has returned."""

    def taken(self) -> list[S]:
        """What the step's calls belong to; nothing of it is kept."""
        series = list(self.series.values())
        self.series.clear()
        return series

    @property
    def step_us(self) -> float:
        """Of the step so far, backward left out."""
        return (time.perf_counter_ns() - self._began_ns - self._backward_ns) / 1e3

    def start(self) -> None:
        super().start()
        self._walking = 0
        entering = module_hooks.register_module_forward_pre_hook(self.guarded(self._enter))
        leaving = module_hooks.register_module_forward_hook(
            self.guarded(self._leave), always_call=True
        )
        keep_hooks(self._patches, entering, leaving)

    def stop(self) -> None:
        super().stop()
        self.series.clear()
        self.running.clear()

    def step_begin(self) -> None:
        self.series.clear()
        self.running.clear()
        self.backwards = self._backward_ns = 0
        self._began_ns = time.perf_counter_ns()

    def backward_begins(self, call: Backward) -> None:
        """Calls before it and behind it cannot be one."""
        self.backwards += 1
        self._walking += 1
        if self._walking == 1:
            self._walks_since_ns = time.perf_counter_ns()

    def backward_ends(self, call: Backward) -> None:
        """Checkpointing runs modules again meanwhile."""
        self._walking -= 1
        if self._walking == 0:
            self._backward_ns += time.perf_counter_ns() - self._walks_since_ns

    def _enter(self, module: nn.Module, args: Any) -> None:
        if self.context.in_step and not self._walking:
            self.running.append((module, self.entered(module, args), time.perf_counter_ns()))

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        while self.running:
            running, series, began_ns = self.running.pop()
            if running is not module:
                continue
            if series is not None:
                series.us += (time.perf_counter_ns() - began_ns) / 1e3
                self.left(series, output)
            return
