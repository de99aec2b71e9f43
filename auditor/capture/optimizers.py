"""The optimizers of the program, also those that step seldom."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from auditor.capture.probe import Context, Probe


def live_optimizers() -> list[Optimizer]:
    """All optimizers that exist. Slow: asks all live objects."""
    return [each for each in gc.get_objects() if issubclass(type(each), Optimizer)]


def groups_of(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Its parameter groups; none of one that is half made."""
    return list(getattr(optimizer, "param_groups", ()))


def tensors_of(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    """What it steps."""
    return (tensor for group in groups_of(optimizer) for tensor in group["params"])


class OptimizerSteps:
    """Tells of every optimizer's step, from :meth:`install` to :meth:`uninstall`.

    The hooks stay that long: in a script a step ends inside such a hook, while torch walks its list of hooks, which must not
    change then. Installed before the script's own step finder, they are called first.
    """

    def __init__(
        self, *, before: Callable[[Optimizer], None] | None = None, after: Callable[[Optimizer], None] | None = None
    ) -> None:
        self._before = before
        self._after = after
        self._handles: list[Any] = []

    def install(self) -> None:
        """Begin to tell."""
        before, after = self._before, self._after
        if before is not None:
            self._handles.append(register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: before(optimizer)))
        if after is not None:
            self._handles.append(register_optimizer_step_post_hook(lambda optimizer, args, kwargs: after(optimizer)))

    def uninstall(self) -> None:
        """Stop. May be called twice."""
        while self._handles:
            self._handles.pop().remove()


class OptimizerProbe(Probe):
    """A probe that is told of every optimizer's step, also outside the passes that it watches."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._told = OptimizerSteps(before=self.before_optimizer, after=self.after_optimizer)

    def install(self) -> None:
        """Notice steps."""
        self._told.install()

    def uninstall(self) -> None:
        """Stop noticing."""
        self._told.uninstall()

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """It is about to step: its gradients are there, but for those that its closure makes."""

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """It has stepped."""
