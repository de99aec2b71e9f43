"""Optimizers that were told to step parameter by parameter, in a rehearsal: how many operators does
each step() take?
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from torch.optim.optimizer import Optimizer

from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, groups_of

from ..rows import SingleTensorStepRow


@dataclass
class _Stepped:
    """Calls of one optimizer's ``step()`` in one step of the program, and the operators in them."""

    at: int | None
    n: int = 0
    operators: int = 0


class SingleTensorStepsProbe(OptimizerProbe):
    """Adds rows to ``optimizer``, for torch's own optimizers whose groups all say that there is to
    be no list of tensors.

    What is left open is not looked at: torch then decides by the types of the parameters, and those
    of the shadow are its own.
    """

    name = "stepping"
    parts = ("optimizer",)
    passes = frozenset({"loud"})
    in_runs = False
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._made_at: weakref.WeakKeyDictionary[Optimizer, int | None] = (
            weakref.WeakKeyDictionary()
        )
        self._stepped: dict[int, tuple[Optimizer, _Stepped]] = {}
        self._before = 0

    def install(self) -> None:
        """Remember where each optimizer is made."""
        super().install()
        self._always.around(Optimizer, "__init__", before=self._made)

    def _made(self, optimizer: Any, *_: Any, **__: Any) -> None:
        self._made_at[optimizer] = self.context.frames.here()

    def start(self) -> None:
        super().start()
        self._stepped.clear()

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Operators from here on are its own."""
        if self.context.shadow is not None:
            self._before = self.context.shadow.operators

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """It has stepped."""
        shadow = self.context.shadow
        if shadow is None or self.context.pass_name != "loud" or not _one_by_one(optimizer):
            return
        stepped = self._stepped.setdefault(
            id(optimizer), (optimizer, _Stepped(self.context.frames.here()))
        )[1]
        stepped.n += 1
        stepped.operators += shadow.operators - self._before

    def step_end(self) -> None:
        for optimizer, stepped in self._stepped.values():
            at, made_at, name = stepped.at, self._made_at.get(optimizer), type(optimizer).__name__
            row = SingleTensorStepRow(
                at=at, made_at=made_at, name=name, n=stepped.n, operators=stepped.operators
            )
            self.context.add(row)
        self._stepped.clear()


def _one_by_one(optimizer: Optimizer) -> bool:
    groups = groups_of(optimizer)
    return (
        type(optimizer).__module__.startswith("torch.optim.")
        and bool(groups)
        and all(map(_is_alone, groups))
    )


def _is_alone(group: dict[str, Any]) -> bool:
    """``foreach=False``, or only ``fused=False``, which does not choose the lists either."""
    foreach, fused = group.get("foreach", True), group.get("fused")
    return not fused and (foreach is False or (foreach is None and fused is False))
