"""Optimizer steps on parameters of a module that was put into eval mode and stayed there."""

from __future__ import annotations

import functools
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.torch_private.training import BatchNorm, modules_of, own_parameters
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, PerOptimizer, tensors_of

from ..rows import SwitchedRow

SWITCHES = 256
"""Changes of a module's mode that are looked at; a program that makes more of them changes back."""

OPTIMIZERS = 64

DROPOUTS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)


@dataclass
class _Switch:
    """A call of ``eval()`` on a module in train mode. ``parts``: what of it then behaves in another
    way; ``own``: its parameters.
    """

    owner: weakref.ref[nn.Module]
    parts: list[weakref.ref[nn.Module]]
    own: frozenset[int]
    before: dict[int, int]
    """Steps of each optimizer since the parts were put into train mode, by its number."""
    row: SwitchedRow


class EvalModeStepsProbe(OptimizerProbe):
    """Writes ``switched``: a row for each line that put a module into eval mode, when the pass is
    over, of all steps until then.

    A change of mode is looked at when a module makes it; a call that changes nothing costs a
    comparison.
    """

    name = "switched"
    parts = ("switched",)
    passes = frozenset({"loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._changing = False
        self._looked = 0
        self._taken = PerOptimizer[list[int]](OPTIMIZERS)
        """Of each optimizer its number, and its steps so far."""
        self._since: weakref.WeakKeyDictionary[nn.Module, dict[int, int]] = (
            weakref.WeakKeyDictionary()
        )
        self._pending: list[_Switch] = []
        self._rows: dict[int, SwitchedRow] = {}

    def install(self) -> None:
        """Notice changes of mode, and steps."""
        super().install()
        original = nn.Module.train
        evaluated, trained = self.guarded(self._evaluated), self.guarded(self._trained)

        @functools.wraps(original)
        def train(module: nn.Module, mode: bool = True) -> nn.Module:
            if self._changing or module.training == mode or self._looked >= SWITCHES:
                return original(module, mode)
            self._changing = True  # its children follow
            self._looked += 1
            try:
                parts = [
                    each for each in modules_of(module) if each.training != mode and differs(each)
                ]
                result = original(module, mode)
            finally:
                self._changing = False
            if parts:
                (trained if mode else evaluated)(module, parts)
            return result

        self._always.attribute(nn.Module, "train", train)

    def uninstall(self) -> None:
        super().uninstall()
        self._pending.clear()

    def stop(self) -> None:
        rows, self._rows = self._rows, {}
        self._pending.clear()
        for row in rows.values():
            if row.steps:
                self.context.add(row)

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Is one of those that were put into eval mode still there?"""
        taken = self._taken.of(optimizer, lambda: [len(list(self._taken)), 0])
        if taken is None:
            return
        taken[1] += 1
        for switch in tuple(self._pending):
            before = switch.before.get(taken[0], 0)
            if _has_gone_back(switch):
                self._pending.remove(switch)
            elif before and any(
                each.grad is not None and id(each) in switch.own for each in tensors_of(optimizer)
            ):
                switch.row.before = max(switch.row.before, before)
                switch.row.steps += 1

    def _trained(self, module: nn.Module, parts: list[nn.Module]) -> None:
        taken = {number: steps for number, steps in self._taken}  # noqa: C416 - of lists
        self._since.update((part, taken) for part in parts)

    def _evaluated(self, module: nn.Module, parts: list[nn.Module]) -> None:
        before = {
            number: steps - max(self._since.get(part, {}).get(number, 0) for part in parts)
            for number, steps in self._taken
        }
        if not any(before.values()) or any(part is module for part in parts):
            return  # nothing was trained yet, or one layer was frozen
        at = self._place()
        if at is None:
            return
        row = self._rows.get(at)
        if row is None:
            kinds = Counter(type(part).__name__ for part in parts)
            row = self._rows[at] = SwitchedRow(
                at=at,
                module=type(module).__name__,
                parts=dict(sorted(kinds.items())),
                before=0,
                steps=0,
                grads=torch.is_grad_enabled(),
            )
        own = frozenset(map(id, parameters_of(module)))
        references = [weakref.ref(part) for part in parts]
        self._pending.append(_Switch(weakref.ref(module), references, own, before, row))

    def _place(self) -> int | None:
        """The line that asked: not one in a ``train`` or ``eval`` of the user's own modules."""
        frames = self.context.frames
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if frames.is_user(code.co_filename) and code.co_name not in ("train", "eval"):
                return frames.number(frame)
            frame = frame.f_back
        return None


def _has_gone_back(switch: _Switch) -> bool:
    """The module, or a part of it, is in train mode again, or is no more."""
    owner = switch.owner()
    parts = [part() for part in switch.parts]
    return owner is None or owner.training or any(part is None or part.training for part in parts)


def differs(module: nn.Module) -> bool:
    """It computes something else in train mode than in eval mode."""
    if isinstance(module, DROPOUTS):
        return float(module.p) > 0
    if isinstance(module, nn.RNNBase):
        return float(module.dropout) > 0 and int(module.num_layers) > 1
    if isinstance(module, nn.MultiheadAttention):
        return float(module.dropout) > 0
    return (
        BatchNorm is not None
        and isinstance(module, BatchNorm)
        and getattr(module, "running_mean", None) is not None
    )


def parameters_of(module: nn.Module) -> Iterator[Any]:
    """All of its parameters."""
    return (each for part in modules_of(module) for each in own_parameters(part).values())
