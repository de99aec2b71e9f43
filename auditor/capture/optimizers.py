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


def capturing() -> bool:
    """True while a CUDA graph is being recorded: reading breaks the recording, and what is added would be part of the graph."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


class OptimizerSteps:
    """Tells of every optimizer's step that runs, from :meth:`install` to :meth:`uninstall`.

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
        for tell, register in (
            (self._before, register_optimizer_step_pre_hook),
            (self._after, register_optimizer_step_post_hook),
        ):
            if tell is not None:
                self._handles.append(register(_hook(tell)))

    def uninstall(self) -> None:
        """Stop. May be called twice."""
        while self._handles:
            self._handles.pop().remove()


def _hook(tell: Callable[[Optimizer], None]) -> Callable[[Optimizer, Any, Any], None]:
    def hook(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not capturing():
            tell(optimizer)

    return hook


class OptimizerProbe(Probe):
    """A probe that is told of every optimizer's step, also outside the passes that it watches.

    An optimizer is the user's to let go of: what a probe remembers of one must not keep it, nor its parameters.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        own = type(self)
        before = self.before_optimizer if own.before_optimizer is not OptimizerProbe.before_optimizer else None
        after = self.after_optimizer if own.after_optimizer is not OptimizerProbe.after_optimizer else None
        self._told = OptimizerSteps(before=before, after=after)

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
