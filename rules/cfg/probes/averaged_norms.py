"""Copies of a model that follow its parameters and keep the running statistics that they began with."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.torch_private.training import BatchNorm, modules_of
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, tensors_of
from auditor.recordings.schema.graph import CensusRow

MOST = 256
"""Batch norms that are followed."""

FEWEST = 2
"""Times that one ran in eval mode with other weights than before, and the same statistics."""


@dataclass
class _Norm:
    """A batch norm that ran: what it held at first, and what of it changed."""

    weight: torch.Tensor
    mean: torch.Tensor
    at: int | None
    trains: bool = False
    moved: int = 0
    still: bool = True


@dataclass
class _Asked:
    """A line that asked a module for its parameters, and one of them as it was then."""

    at: int | None
    weight: torch.Tensor


class AveragedNormsProbe(OptimizerProbe):
    """Writes ``census``: a row for each line that changes the parameters of such a copy, at which the
    copy is asked for them.
    """

    name = "averaged_norms"
    parts = ("census",)
    passes = frozenset({"loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._optimizers = weakref.WeakSet[Optimizer]()
        self._norms = weakref.WeakKeyDictionary[nn.Module, _Norm]()
        self._firsts = weakref.WeakKeyDictionary[nn.Module, Any]()
        """Of a module its first batch norm, as a weak reference; None of one without."""
        self._asked = weakref.WeakKeyDictionary[nn.Module, _Asked]()
        self._written = weakref.WeakKeyDictionary[nn.Module, int | None]()
        """Of its first batch norm: the line after which its weight was another."""

    def start(self) -> None:
        super().start()
        if BatchNorm is not None:
            self._patches.around(BatchNorm, "forward", before=self._runs)
            self._patches.around(nn.Module, "named_parameters", before=self._asks)
            self._patches.after_outermost(
                nn.Module, "state_dict", lambda *_, **__: self.in_step, self._asks
            )

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """Its parameters are trained."""
        self._optimizers.add(optimizer)

    def stop(self) -> None:
        super().stop()
        self._look([*self._asked])
        trained = {id(each) for optimizer in self._optimizers for each in tensors_of(optimizer)}
        norms: list[tuple[Any, _Norm]] = [*self._norms.items()]
        students = [
            module.running_mean
            for module, norm in norms
            if norm.trains
            and id(module.weight) in trained
            and not _is(module.running_mean, norm.mean)
        ]
        told = set[int | None]()
        for module, norm in norms:
            own = module.running_mean
            alone = not norm.trains and id(module.weight) not in trained and norm.still
            follows = any(
                each.shape == own.shape and not _is(each, plain(own)) for each in students
            )
            if alone and norm.moved >= FEWEST and follows and _is(own, norm.mean):
                at = self._line_of(module)
                if at is not None and at not in told:
                    told.add(at)
                    n = sum(self._line_of(each) == at for each, _ in norms)
                    row = CensusRow(kind="average", at=at, name=type(module).__name__, n=n)
                    row.steps, row.other_at = norm.moved, norm.at
                    self.context.add(row)
        for each in (self._norms, self._firsts, self._asked, self._written):
            each.clear()

    def _runs(self, module: Any, *_: Any, **__: Any) -> None:
        weight, mean = getattr(module, "weight", None), getattr(module, "running_mean", None)
        if weight is None or mean is None or is_lazy(weight):
            return
        norm = self._norms.get(module)
        if norm is None:
            if len(self._norms) >= MOST:
                return
            at = self.context.frames.here()
            norm = self._norms[module] = _Norm(_copy(weight), _copy(mean), at)
        norm.trains = norm.trains or module.training
        if not norm.trains and not _is(weight, norm.weight):
            norm.weight, norm.moved = _copy(weight), norm.moved + 1
        norm.still = norm.still and _is(mean, norm.mean)

    # -- the line that changes the parameters ------------------------------------------------------

    def _asks(self, module: nn.Module, *_: Any, **__: Any) -> None:
        norm = self._first(module) if self.in_step else None
        if norm is not None:
            self._look([norm])
            self._asked[norm] = _Asked(self.context.frames.here(), _copy(norm.weight))

    def _first(self, module: nn.Module) -> Any:
        """Its first batch norm."""
        if module not in self._firsts:
            found = (each for each in modules_of(module) if isinstance(each, BatchNorm))
            norm = next(
                (each for each in found if each.weight is not None and not is_lazy(each.weight)),
                None,
            )
            self._firsts[module] = None if norm is None else weakref.ref(norm)
        held = self._firsts[module]
        return None if held is None else held()

    def _look(self, norms: Iterable[Any]) -> None:
        for norm in norms:
            asked = self._asked.get(norm)
            if asked is not None and not _is(norm.weight, asked.weight):
                self._written[norm] = asked.at

    def _line_of(self, norm: nn.Module) -> int | None:
        """Of the module that it is in."""
        for module in [*self._firsts]:
            first = self._first(module)
            if first in self._written and any(each is norm for each in modules_of(module)):
                return self._written[first]
        return None


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return plain(tensor.detach()).clone()


def _is(tensor: torch.Tensor, before: torch.Tensor) -> bool:
    return torch.equal(plain(tensor.detach()), before)
