"""Gradients that go into an optimizer's step with those of the step before still in them."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.instruments.live_objects import alive
from auditor.capture.instruments.torch_private.tensors import version_of
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, PerOptimizer, tensors_of

from ..rows import UnclearedRow

PARAMETERS = 8
"""Parameters of an optimizer that are followed: some of its first, its last and those between."""

OPTIMIZERS = 64
"""Optimizers that are followed at most; one made anew at every step keeps nothing from step to
step.
"""


@dataclass
class _Followed:
    """A parameter's gradient since its optimizer stepped. The version says whether anything has
    written into it since.

    Nothing is kept alive: gradients that the program drops are gone.
    """

    parameter: weakref.ref[torch.Tensor]
    gradient: weakref.ref[torch.Tensor]
    version: int
    cleared: bool = False
    added_to: bool = False

    def look(self) -> None:
        """Before a backward: was it dropped, zeroed or otherwise written since?"""
        parameter, gradient = alive(self.parameter), alive(self.gradient)
        gone = parameter is None or gradient is None or parameter.grad is not gradient
        if gone or _version(gradient) != self.version:
            self.cleared = True

    def look_again(self) -> None:
        version = _version(alive(self.gradient))
        if not self.cleared and version != self.version:
            self.added_to, self.version = True, version


@dataclass
class _Watched:
    """One optimizer."""

    row: UnclearedRow
    followed: list[_Followed] = field(default_factory=list)


class StaleGradsProbe(OptimizerProbe):
    """Writes ``uncleared``, when the pass is over. Nothing of a tensor is read but how often it was
    written to.
    """

    name = "uncleared"
    parts = ("uncleared",)
    passes = frozenset({"loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._watched = PerOptimizer[_Watched](OPTIMIZERS)
        self._watching = False
        self._backward_at: int | None = None

    def start(self) -> None:
        self._watched.clear()
        self._watching = True
        super().start()

    def stop(self) -> None:
        """Write one row for each optimizer that stepped. May be called twice."""
        super().stop()
        self._watching = False
        for each in self._watched:
            self.context.add(each.row)
        self._watched.clear()

    def backward_begins(self, call: Backward) -> None:
        """Which gradients are still those of the step before?"""
        if not call.nested:
            self._backward_at = self.context.frames.here() if self.context.in_step else None
            for followed in self._all():
                followed.look()

    def backward_ends(self, call: Backward) -> None:
        """Which of them were added to?"""
        if not call.nested:
            for followed in self._all():
                followed.look_again()

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """Count the step if what it used was added to the gradients of the step before; then begin
        anew.
        """
        if self._watching:
            self._stepped(optimizer)

    def _stepped(self, optimizer: Optimizer) -> None:
        watched = self._watched.of(optimizer, lambda: _Watched(self._row(optimizer)))
        if watched is None:
            return
        watched.row.steps += 1
        if watched.followed and all(
            each.added_to and not each.cleared for each in watched.followed
        ):
            watched.row.piled += 1
            watched.row.backward_at = self._backward_at
        with_gradient: list[Any] = [each for each in tensors_of(optimizer) if each.grad is not None]
        watched.followed = [
            _Followed(weakref.ref(each), weakref.ref(each.grad), _version(each.grad))
            for each in with_gradient[:: max(1, -(-len(with_gradient) // PARAMETERS))]
        ]

    def _row(self, optimizer: Optimizer) -> UnclearedRow:
        name, at = type(optimizer).__name__, self.context.frames.here()
        return UnclearedRow(at=at, backward_at=None, optimizer=name, steps=0, piled=0)

    def _all(self) -> list[_Followed]:
        return [followed for watched in self._watched for followed in watched.followed]


def _version(gradient: torch.Tensor | None) -> int:
    return -1 if gradient is None else version_of(gradient)
