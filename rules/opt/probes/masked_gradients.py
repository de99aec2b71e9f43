"""Rows whose gradients the program sets to zero itself, and that the optimizer moves all the same."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.instruments.live_objects import alive
from auditor.capture.instruments.torch_private.tensors import has_hooks
from auditor.capture.probes.base import Context
from auditor.capture.probes.numerics.nonfinite import names_of
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, groups_of

from ..rows import DecayedRow

LATE = 8
"""Steps without a gradient: moments that are still zero then say that there never was one."""

NUMBERS = 1 << 24
"""Of a parameter that is looked at."""


@dataclass
class _Masked:
    """Rows of a parameter, as they were before a step; then, behind it."""

    parameter: weakref.ref[torch.Tensor]
    at: int | None
    rows: torch.Tensor
    values: torch.Tensor


class MaskedGradientsProbe(OptimizerProbe):
    """Writes ``decayed``.

    Gradients are compared with what hooks of the program make of them, and with what is left as the
    optimizer steps. Hooks are wrapped for one backward.
    """

    name = "decayed"
    passes = frozenset({"gradients"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._wrapped: list[tuple[dict[int, Any], int, Any, Any]] = []
        self._had: dict[int, torch.Tensor] = {}
        """Rows of a parameter that had a gradient in this step, by its ``id``."""
        self._stepping: list[_Masked] = []
        self._moved: list[_Masked] = []

    def backward_begins(self, call: Backward) -> None:
        if call.nested or not self.in_step:
            return
        for leaf in call.walked.leaves:
            hooks = has_hooks(leaf.variable) if _may_be_masked(leaf.variable) else None
            for key, hook in list(hooks.items()) if isinstance(hooks, dict) else ():
                hooks[key] = self._watched(leaf.variable, hook)
                self._wrapped.append((hooks, key, hooks[key], hook))

    def backward_ends(self, call: Backward) -> None:
        if call.nested:
            return
        while self._wrapped:
            hooks, key, ours, hook = self._wrapped.pop()
            if hooks.get(key) is ours:
                hooks[key] = hook
        for leaf in call.walked.leaves if self.in_step and not call.failed else ():
            if _may_be_masked(leaf.variable):
                self._note(leaf.variable, leaf.variable.grad)

    def _watched(
        self, parameter: torch.Tensor, hook: Callable[[torch.Tensor], Any]
    ) -> Callable[[torch.Tensor], Any]:
        note = self.guarded(self._note)

        def watched(gradient: torch.Tensor) -> Any:
            note(parameter, gradient)
            return hook(gradient)

        return watched

    def _note(self, parameter: torch.Tensor, gradient: torch.Tensor | None) -> None:
        rows = None if gradient is None else _with_gradient(gradient)
        if rows is not None:
            before = self._had.get(id(parameter))
            self._had[id(parameter)] = rows if before is None else before | rows

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Which rows had a gradient, and have none as the step begins?"""
        self._stepping.clear()
        if not (self.watching and self.in_step) or self.context.global_step < LATE:
            return
        at = self.context.frames.here()
        for parameter in _decaying(optimizer):
            had, gradient = self._had.get(id(parameter)), parameter.grad
            left = None if gradient is None or had is None else _with_gradient(gradient)
            if had is None or left is None or not bool(left.any()):
                continue
            rows = had & ~left
            if bool(rows.any()):
                values = parameter.detach()[rows].clone()
                self._stepping.append(_Masked(weakref.ref(parameter), at, rows, values))

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """Which of them have moved toward zero, without a moment?"""
        for each in self._stepping:
            parameter = alive(each.parameter)
            if parameter is None:
                continue
            state = optimizer.state.get(parameter, {}).values()
            moments = [one for one in state if getattr(one, "shape", None) == parameter.shape]
            now = parameter.detach()[each.rows]
            decayed = bool((now != each.values).any()) and bool(
                (now.abs() <= each.values.abs()).all()
            )
            if decayed and moments and not any(bool(one[each.rows].any()) for one in moments):
                each.values = now
                self._moved.append(each)
        self._stepping.clear()

    def step_end(self) -> None:
        """Nothing has put them back."""
        for each in self._moved:
            parameter = alive(each.parameter)
            if parameter is None or not torch.equal(parameter.detach()[each.rows], each.values):
                continue
            name = names_of([parameter]).get(id(parameter), "")
            n, of = int(each.rows.sum()), len(each.rows)
            self.context.add(DecayedRow(at=each.at, name=name, n=n, of=of))
        self._moved.clear()
        self._had.clear()

    def stop(self) -> None:
        super().stop()
        self._stepping.clear()
        self._moved.clear()
        self._had.clear()


def _may_be_masked(parameter: torch.Tensor) -> bool:
    return parameter.dim() > 0 and len(parameter) > 1 and parameter.numel() <= NUMBERS


def _with_gradient(gradient: torch.Tensor) -> torch.Tensor | None:
    if type(gradient) is not torch.Tensor or gradient.layout is not torch.strided:
        return None
    return (
        gradient.detach().ne(0).flatten(1).any(1) if gradient.dim() > 1 else gradient.detach() != 0
    )


def _decaying(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    for group in groups_of(optimizer):
        decay = group.get("weight_decay")
        if isinstance(decay, (int, float)) and decay > 0:
            yield from group["params"]
