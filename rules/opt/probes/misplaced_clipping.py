"""Clipping that runs when there is nothing to clip: before the backward, or behind the optimizer."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import (
    OptimizerProbe,
    PerOptimizer,
    tensors_of,
    watch_clipping,
    watch_clipping_by_value,
)

from ..rows import ClippingRow

CLIPS = 256
"""Calls that are remembered at most."""

OPTIMIZERS = 64
"""Optimizers that are followed at most."""


@dataclass(frozen=True)
class _Clip:
    """One call: whose gradients, which of them were there, and after how many backwards."""

    number: int
    at: int
    given: frozenset[int]
    there: frozenset[int]
    backwards: int


class _Watched:
    """One optimizer since its last step."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps = 0
        self.backwards = -1
        self.clips = 0
        self.misplaced: Counter[tuple[int, bool]] = Counter()


class MisplacedClippingProbe(OptimizerProbe):
    """Writes ``clippings``, when the pass is over. Of a tensor it asks only whether its gradient is
    there.
    """

    name = "clippings"
    parts = ("clippings",)
    passes = frozenset({"loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._watched = PerOptimizer[_Watched](OPTIMIZERS)
        self._clips: deque[_Clip] = deque(maxlen=CLIPS)
        self._seen = 0
        self._backwards = 0
        self._watching = False

    def start(self) -> None:
        """Watch clipping, backwards and steps."""
        self._watching = True
        super().start()
        watch_clipping(self._patches, lambda parameters, _: self._clipping(parameters))
        watch_clipping_by_value(self._patches, self._clipping)

    def stop(self) -> None:
        """Put everything back, then write the rows. May be called twice."""
        super().stop()
        self._watching = False
        for each in self._watched:
            for (at, absent), n in each.misplaced.items():
                row = ClippingRow(at=at, optimizer=each.name, steps=each.steps, n=n, absent=absent)
                self.context.add(row)
        self._watched.clear()
        self._clips.clear()

    def backward_begins(self, call: Backward) -> None:
        """Gradients come."""
        if not call.nested:
            self._backwards += 1

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """Judge the calls since its last step."""
        if self._watching:
            self._stepped(optimizer)

    # -- what happens ------------------------------------------------------------------------------

    def _clipping(self, parameters: Sequence[torch.Tensor]) -> None:
        at = self.context.frames.here() if self.context.in_step else None
        if at is None:
            return
        self._seen += 1
        there = frozenset(id(each) for each in parameters if each.grad is not None)
        given = frozenset(id(each) for each in parameters)
        self._clips.append(_Clip(self._seen, at, given, there, self._backwards))

    def _stepped(self, optimizer: Optimizer) -> None:
        watched = self._watched.of(optimizer, lambda: _Watched(type(optimizer).__name__))
        if watched is None:
            return
        if watched.backwards >= 0:  # it stepped before: all since then was seen
            watched.steps += 1
            self._judge(watched, {id(each) for each in tensors_of(optimizer)})
        watched.backwards, watched.clips = self._backwards, self._seen

    def _judge(self, watched: _Watched, own: set[int]) -> None:
        """All calls came to nothing, and a backward ran behind each: what the optimizer stepped
        with was not clipped.
        """
        found: set[tuple[int, bool]] = set()
        for clip in self._clips:
            if clip.number <= watched.clips or not own & clip.given:
                continue
            absent = not own & clip.there
            if not absent and clip.backwards > watched.backwards:
                return
            if clip.backwards < self._backwards:
                found.add((clip.at, absent))
        watched.misplaced.update(found)
