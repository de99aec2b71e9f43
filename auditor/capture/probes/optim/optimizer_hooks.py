"""The optimizers of the program, also those that step seldom."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, Generic, TypeVar

import torch
from torch.nn.utils import clip_grad
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.instruments.live_objects import live_instances
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.compiler import NOTHING, STEPPED, traced_as
from auditor.capture.instruments.torch_private.training import CLIP_BY_NORM, clips_by_norm
from auditor.capture.probes.base import Context, Probe

Clips = Callable[[Sequence[torch.Tensor], torch.Tensor], None]


def watch_clipping(patches: Patches, clips: Clips) -> None:
    """Call ``clips`` with the parameters and their norm before they are clipped, until ``patches``
    are undone.

    An infinite bound clips nothing: programs use it to ask for the norm. A bound that is a tensor
    is not read.
    """

    def before(
        parameters: Any, max_norm: Any, total_norm: torch.Tensor, *_: Any, **__: Any
    ) -> None:
        if not (isinstance(max_norm, float) and math.isinf(max_norm)):
            clips([parameters] if isinstance(parameters, torch.Tensor) else parameters, total_norm)

    if clips_by_norm is not None:
        patches.around(clip_grad, CLIP_BY_NORM, before=before)


def watch_clipping_by_value(
    patches: Patches, clips: Callable[[Sequence[torch.Tensor]], None]
) -> None:
    """Call ``clips`` with the parameters before gradients are clipped, until ``patches`` end."""
    told = patches.guarded(clips)

    def around(original: Callable[..., None], parameters: Any, *args: Any, **kwargs: Any) -> None:
        # an iterator is gone through once
        clipped = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        told(clipped)
        original(clipped, *args, **kwargs)

    by_value = getattr(clip_grad.clip_grad_value_, "__wrapped__", None)
    if isinstance(by_value, FunctionType):
        patches.code(by_value, around)


def live_optimizers() -> list[Optimizer]:
    """All optimizers that exist. Slow: asks all live objects."""
    return live_instances(Optimizer)


def groups_of(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Its parameter groups; none of one that is half made."""
    return list(getattr(optimizer, "param_groups", ()))


def tensors_of(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    """What it steps."""
    return (tensor for group in groups_of(optimizer) for tensor in group["params"])


def capturing() -> bool:
    """True while a CUDA graph is recorded, which a read breaks and an operator joins."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


class OptimizerSteps:
    """Tells of every optimizer's step that runs, from :meth:`install` to :meth:`uninstall`.

    ``before`` is told when the gradients are there: where the step was given a closure that makes
    them (so do L-BFGS, and frameworks for every optimizer), after its first call; else as the step
    begins. A step that ``torch.compile`` traced runs no hook: ``after`` is told when the compiled
    function has returned, ``before`` is not. The hooks stay that long: in a script a step ends inside such a hook, while torch walks
    its list of hooks, which must not change then. Installed before the script's own step finder,
    they are called first.
    """

    def __init__(
        self,
        *,
        before: Callable[[Optimizer], None] | None = None,
        after: Callable[[Optimizer], None] | None = None,
    ) -> None:
        self._before = before
        self._after = after
        self._handles: list[Any] = []

    def install(self) -> None:
        """Begin to tell."""
        if self._before is not None:
            self._handles.append(register_optimizer_step_pre_hook(_pre_hook(self._before)))
        if self._after is not None:
            self._handles.append(register_optimizer_step_post_hook(_post_hook(self._after)))
            COMPILED_CODE.add(self._after)

    def uninstall(self) -> None:
        """Stop. May be called twice."""
        while self._handles:
            self._handles.pop().remove()
        if self._after is not None:
            COMPILED_CODE.remove(self._after)


Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Of a call of ``step``: the positional ones, the optimizer first, and those by name."""


def _post_hook(tell: Callable[[Optimizer], None]) -> Callable[[Optimizer, Any, Any], None]:
    def hook(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not capturing():
            tell(optimizer)

    return traced_as(hook, STEPPED)


def _pre_hook(
    tell: Callable[[Optimizer], None],
) -> Callable[[Optimizer, Any, Any], Arguments | None]:
    def hook(optimizer: Optimizer, args: Any, kwargs: Any) -> Arguments | None:
        if capturing():
            return None
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if not callable(closure):
            tell(optimizer)
            return None
        telling = _telling_once(closure, lambda: tell(optimizer))
        if len(args) > 1:
            return (args[0], telling, *args[2:]), kwargs
        return args, {**kwargs, "closure": telling}

    return traced_as(hook, NOTHING)


def _telling_once(closure: Callable[..., Any], tell: Callable[[], None]) -> Callable[..., Any]:
    """The closure, which tells when it first returns: later calls are in the middle of the step."""
    told = False

    def then_tell(*args: Any, **kwargs: Any) -> Any:
        nonlocal told
        result = closure(*args, **kwargs)
        if not told:
            told = True
            tell()
        return result

    return then_tell


W = TypeVar("W")


class PerOptimizer(Generic[W]):
    """What a probe remembers of each optimizer, of the first ``most`` that it sees. Keeps none of
    them alive, and takes no later one at the same address for an earlier.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[int, tuple[weakref.ref[Optimizer], W]] = {}

    def __iter__(self) -> Iterator[W]:
        return (each for _, each in self._held.values())

    def get(self, optimizer: Optimizer) -> W | None:
        """What is remembered of an optimizer; None if nothing is."""
        seen, each = self._held.get(id(optimizer), (None, None))
        return each if seen is not None and seen() is optimizer else None

    def of(self, optimizer: Optimizer, first_seen: Callable[[], W]) -> W | None:
        """The optimizer's record, created by ``first_seen`` at first; None if too many."""
        each = self.get(optimizer)
        if each is None and len(self._held) < self._most:
            each = first_seen()
            self._held[id(optimizer)] = weakref.ref(optimizer), each
        return each

    def clear(self) -> None:
        """Forget all."""
        self._held.clear()


class OptimizerProbe(Probe):
    """A probe that is told of every optimizer's step, also outside the passes that it watches.

    An optimizer is the user's to let go of: what a probe remembers of one must not keep it, nor its
    parameters. What :meth:`before_optimizer` and :meth:`after_optimizer` raise is written down as
    missed, and the user's step continues.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        own = type(self)
        tells_before = own.before_optimizer is not OptimizerProbe.before_optimizer
        tells_after = own.after_optimizer is not OptimizerProbe.after_optimizer
        self._told = OptimizerSteps(
            before=self.guarded(self.before_optimizer) if tells_before else None,
            after=self.guarded(self.after_optimizer) if tells_after else None,
        )

    def install(self) -> None:
        self._always.on_undo(self._told.uninstall)
        self._told.install()

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """It is about to step: its gradients are there (a closure was called once)."""

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """It has stepped."""
