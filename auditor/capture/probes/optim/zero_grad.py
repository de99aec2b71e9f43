"""How the step clears its gradients: where, with which ``set_to_none``, at what cost; and those that
the program fills with zeros itself, one by one, and that the next backward adds to.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable
from time import perf_counter
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.instruments.storages import storage_key
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe
from auditor.capture.probes.tally import Counted, Tally
from auditor.recordings.schema.graph import ZeroGradRow

Key = tuple[int | None, int]
"""Storage and number of elements: ``grad.data`` has those of ``grad``, one row of it has not."""


class ZeroFilledGradsProbe(OptimizerProbe):
    """Adds rows to ``optimizer``, as of a ``zero_grad`` with ``set_to_none=False``.

    Only a ``zero_()`` that the user's own line calls, and whose tensor is a leaf's gradient when
    the next backward begins. Zeros between a backward and the optimizer's step hold a parameter
    still, and are forgotten.
    """

    name = "filled"
    parts = ("optimizer",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._filled: dict[Key, tuple[int, float]] = {}
        self._fills = Counted(context, ZeroGradRow)

    def start(self) -> None:
        super().start()
        original = torch.Tensor.zero_

        @functools.wraps(original)
        def zero_(tensor: torch.Tensor) -> torch.Tensor:
            frame = sys._getframe(1)
            if not self.context.in_step or not self.context.frames.is_user(
                frame.f_code.co_filename
            ):
                return original(tensor)
            begin = perf_counter()
            result = original(tensor)
            us = (perf_counter() - begin) * 1e6
            key = storage_key(tensor)
            if key is not None:
                self._filled[key, tensor.numel()] = self.context.frames.number(frame), us
            return result

        self._patches.attribute(torch.Tensor, "zero_", zero_)

    def stop(self) -> None:
        super().stop()
        self._filled.clear()
        self._fills.clear()

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """What was filled since the last backward is stepped with, not added to."""
        self._filled.clear()

    def backward_begins(self, call: Backward) -> None:
        """Which of the gradients that it adds to were filled?"""
        if not self._filled or call.nested or not self.context.in_step:
            return
        for node in call.walked.leaves:
            grad = node.variable.grad
            key = None if grad is None else (storage_key(grad), grad.numel())
            if key in self._filled:
                at, us = self._filled.pop(key)
                row = self._fills.of(at=at, set_to_none=False, owner="Tensor")
                row.n, row.us = row.n + 1, row.us + us

    def backward_lost(self, error: Exception) -> None:
        """Without the door nothing is said."""
        self._filled.clear()

    def step_end(self) -> None:
        self._fills.write()


class ZeroGradProbe(Tally):
    """Writes ``optimizer``.

    The methods of the two base classes are replaced, which every instance sees that was made
    before, and every subclass that calls ``super().zero_grad()``. A subclass with a loop of its own
    has no ``set_to_none`` and is not seen.
    """

    name = "zero_grad"
    row = ZeroGradRow
    in_rehearsals = True

    def watch(self) -> None:
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            counted = self.around(owner.zero_grad, _asked, owner=owner.__name__)
            self._patches.attribute(owner, "zero_grad", counted)


def _asked(cleared: Any, *args: Any, **kwargs: Any) -> dict[str, Hashable]:
    return {"set_to_none": bool(kwargs.get("set_to_none", args[0] if args else True))}
