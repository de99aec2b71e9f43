"""What a step computes, for ``audit verify``: losses of backwards, parameters at the end."""

import contextlib
from collections.abc import Iterator

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.probes.base import Context
from auditor.capture.probes.numerics.nonfinite import homes_of
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, capturing, groups_of
from auditor.recordings.schema.other_runs import LossRow, ParameterRow

LOSSES = 10_000
"""Losses that are kept at most: a scalar of a few bytes each."""

OPTIMIZERS = 16
"""Optimizers whose parameters are compared at most; they are held, alike on both sides."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class TrainingResultsProbe(OptimizerProbe):
    """Writes ``results``: one row for each loss, and at the last pass's end one for each parameter
    that an optimizer stepped.

    During the pass a loss is only copied where it lives; it is read when the pass is over, so a GPU
    is never waited for.
    """

    name = "results"
    passes = frozenset({"warmup", "quiet", "loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._losses: list[tuple[int, torch.Tensor]] = []
        self._kept = 0
        self._optimizers: dict[int, Optimizer] = {}

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """Notice which optimizers step: the first of them, where new ones are made all the time."""
        if len(self._optimizers) < OPTIMIZERS:
            self._optimizers.setdefault(id(optimizer), optimizer)

    @property
    def _last(self) -> str:
        return "loud" if self.context.device.simulated else "quiet"

    def start(self) -> None:
        if self.context.pass_name in ("warmup", self._last):
            super().start()

    def stop(self) -> None:
        super().stop()
        losses, self._losses = self._losses, []
        for step, loss in losses:
            self.context.add(LossRow(step=step, value=float(loss).hex(), dtype=str(loss.dtype)))
        if self.context.pass_name == self._last:
            for row in self._parameters():
                self.context.add(row)
            self._optimizers.clear()

    def backward_begins(self, call: Backward) -> None:
        if call.nested or self._kept >= LOSSES or capturing():
            return
        for output in call.tensors:
            self._kept += 1
            loss = output.detach()
            kept = loss.clone() if loss.numel() == 1 else loss.sum(dtype=torch.float64)
            self._losses.append((self.context.step, kept))

    def _parameters(self) -> Iterator[ParameterRow]:
        placed = [
            (f"optimizer {number}, group {g}, parameter {p}", parameter)
            for number, optimizer in enumerate(self._optimizers.values())
            for g, group in enumerate(groups_of(optimizer))
            for p, parameter in enumerate(group["params"])
            # of a sharded one each process has a part, and operators on it may talk to the others
            if not parameter.is_sparse and not hasattr(parameter, "placements")
        ]
        names = homes_of([parameter for _, parameter in placed])
        for place, parameter in placed:
            value = parameter.detach()
            yield ParameterRow(
                place=place,
                name=names.get(id(parameter), ""),
                value=float(torch.linalg.vector_norm(value, dtype=torch.float64)).hex(),
                bits=_bits(value),
            )


def _bits(value: torch.Tensor) -> int | None:
    """Sum of the bit patterns as integers: equal for equal tensors in whatever order."""
    integers = _INTEGERS.get(value.element_size())
    if integers is None or value.is_complex():
        return None
    with contextlib.suppress(RuntimeError, NotImplementedError):
        return int(value.contiguous().view(integers).sum(dtype=torch.int64))
    return None
