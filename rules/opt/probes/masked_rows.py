"""Rows of parameters that a hook leaves without a gradient, and that weight decay changes."""

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.monkeypatch import LOOKING
from auditor.capture.instruments.torch_private.tensors import has_hooks
from auditor.capture.probes.base import Context
from auditor.capture.probes.numerics.nonfinite import names_of
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, groups_of

from ..rows import MaskedRow


class MaskedRowsProbe(OptimizerProbe):
    """Writes ``masked_rows`` at the pass's end; nothing is read from a device before it."""

    name = "masked_rows"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._followed: dict[int, tuple[MaskedRow, torch.Tensor, torch.Tensor, torch.Tensor]] = {}
        """The parameter, its rows without a gradient on all steps so far, and their first sizes."""

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
        zero, sizes = ~grad.flatten(1).any(1), parameter.flatten(1).square().sum(1)
        if id(parameter) not in self._followed:
            at = self.context.frames.here()
            row = MaskedRow(at=at, optimizer=optimizer, of=len(parameter))
            self._followed[id(parameter)] = row, parameter, zero, sizes
        row, _, without, _ = self._followed[id(parameter)]
        without &= zero
        row.steps += 1

    def stop(self) -> None:
        super().stop()
        followed = [each for _, each, _, _ in self._followed.values()]
        names = names_of(followed) if followed else {}
        for number, (row, parameter, without, sizes) in self._followed.items():
            with LOOKING, torch.no_grad():
                row.n = int((without & (parameter.flatten(1).square().sum(1) != sizes)).sum())
            row.name = names.get(number, "")
            self.context.add(row)
        self._followed.clear()
