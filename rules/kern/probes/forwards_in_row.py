"""Modules that one function calls several times, each time with a batch of its own, where one call
could take the batches together.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from auditor.capture.instruments.plain_tensor import tensors_in

from ..rows import ForwardsRow
from .module_loops import state_of
from .timed_forwards import ForwardsProbe

LEAST = 3
"""Calls from which a row is written: two views of a batch are too common to be told."""

SERIES = 64
"""Functions and modules that are followed in one step."""

LOOKED_AT = 8
"""Tensors that were given before, up to which the state of the module is compared."""

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
"""They look at the whole batch where they are trained: joined batches give other results."""


@dataclass
class _Series:
    """Calls of one module by one function. ``broken``: no one call does the same."""

    module: str
    backwards: int
    shapes: list[Any]
    state: Any
    lines: dict[int, int] = field(default_factory=dict)
    """Calls of each, in the order of the first."""
    given: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    elements: int = 0
    us: float = 0.0
    broken: bool = False


class ForwardsInRowProbe(ForwardsProbe[_Series]):
    """Writes ``forwards``, where each line called as often as the others. Only modules that no
    other module runs count, with parameters that are trained, given nothing but tensors, which
    differ from call to call in nothing but their first dimension.
    """

    name = "forwards"
    parts = ("forwards",)
    passes = frozenset({"numbers"})

    def step_end(self) -> None:
        step_us = self.step_us
        for each in self.taken():
            often = set(each.lines.values())
            if len(each.lines) >= LEAST and len(often) == 1 and not each.broken:
                self.context.add(
                    ForwardsRow(
                        lines=list(each.lines),
                        module=each.module,
                        n=sum(each.lines.values()),
                        elements=each.elements,
                        us=each.us,
                        step_us=step_us,
                    )
                )

    def entered(self, module: nn.Module, args: Any) -> _Series | None:
        """Of calls inside of others nothing is asked."""
        return None if self.running else self._of(module, args)

    def _of(self, module: nn.Module, args: Any) -> _Series | None:
        """The series that this call belongs to, with the call added; None where it is of none."""
        frame, _ = self.context.frames.user_frame()
        if frame is None or not torch.is_grad_enabled():
            return None
        key = (frame.f_code, id(module))
        series = self.series.get(key)
        if series is None:
            if len(self.series) >= SERIES or not _joinable(module, args):
                return None
            state = state_of(module)
            series = _Series(type(module).__name__, self.backwards, _shapes(args), state)
            self.series[key] = series
        elif not series.broken:
            series.broken = (
                series.backwards != self.backwards
                or not _joinable(module, args)
                or _shapes(args) != series.shapes
                or any(mine is each() for mine in args for each in series.given)
                or (len(series.given) < LOOKED_AT and state_of(module) != series.state)
            )
        line = self.context.frames.number(frame)
        series.lines[line] = series.lines.get(line, 0) + 1
        series.given.extend(weakref.ref(each) for each in tensors_in(args))
        series.elements = max(series.elements, *(each.numel() for each in tensors_in(args)))
        return series


def _joinable(module: nn.Module, args: Any) -> bool:
    """It takes batches of tensors alone, and what it does to one sample needs no other."""
    return (
        bool(args)
        and all(isinstance(each, torch.Tensor) and each.ndim > 1 for each in args)
        and any(each.requires_grad for each in module.parameters())
        and not any(isinstance(each, NORMS) and each.training for each in module.modules())
    )


def _shapes(args: Any) -> list[Any]:
    """All but the first dimension."""
    return [(tuple(each.shape[1:]), each.dtype, each.device) for each in args]
