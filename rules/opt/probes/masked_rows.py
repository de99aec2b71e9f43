"""Rows of parameters that a hook leaves without a gradient, and that weight decay changes."""

from dataclasses import dataclass

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.monkeypatch import LOOKING
from auditor.capture.instruments.torch_private.tensors import has_hooks
from auditor.capture.probes.base import Context
from auditor.capture.probes.numerics.nonfinite import names_of
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, groups_of

from ..rows import MaskedRow


@dataclass
class _Followed:
    row: MaskedRow
    parameter: torch.Tensor
    zero: torch.Tensor
    """Rows without a gradient on all steps so far."""
    sizes: torch.Tensor


class MaskedRowsProbe(OptimizerProbe):
    """Writes ``masked_rows`` at the pass's end; nothing is read from a device before it."""

    name = "masked_rows"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._followed: dict[int, _Followed] = {}

    def before_optimizer(self, optimizer: Optimizer) -> None:
        if not self.watching:
            return
        for group in groups_of(optimizer):
            for each in group["params"] if group.get("weight_decay") else ():
                grad = each.grad
                if grad is None or grad.layout != torch.strided or each.dim() < 2:
                    continue
                if has_hooks(each) and len(each) > 1:
                    with LOOKING, torch.no_grad():
                        self._follow(type(optimizer).__name__, each, grad)

    def _follow(self, optimizer: str, parameter: torch.Tensor, grad: torch.Tensor) -> None:
        zero = ~grad.flatten(1).any(1)
        followed = self._followed.get(id(parameter))
        if followed is None:
            at = self.context.frames.here()
            row = MaskedRow(at=at, optimizer=optimizer, of=len(parameter))
            followed = _Followed(row, parameter, zero, parameter.flatten(1).square().sum(1))
            self._followed[id(parameter)] = followed
        followed.zero &= zero
        followed.row.steps += 1

    def stop(self) -> None:
        super().stop()
        names = names_of([each.parameter for each in self._followed.values()] or ())
        for number, each in self._followed.items():
            with LOOKING, torch.no_grad():
                changed = each.parameter.flatten(1).square().sum(1) != each.sizes
                each.row.n = int((each.zero & changed).sum())
            each.row.name = names.get(number, "")
            self.context.add(each.row)
        self._followed.clear()
