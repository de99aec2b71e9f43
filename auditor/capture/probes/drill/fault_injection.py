"""The fault that a drill plants: a NaN or infinity in a batch, an activation or a gradient, an
out-of-memory error, a kill.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

import torch

from auditor.recordings.schema.drill import DrillInjectedRow, DrillRow
from auditor.runs.plan import Drill

OOM_MESSAGE = "CUDA out of memory. Tried to allocate 2.00 GiB. (raised by audit drill)"
"""As torch words it: handlers look for 'out of memory' in the text."""

Tell = Callable[[DrillRow], None]


class Injector:
    """Plants one fault, once, at the first opportunity from the drill's step on.

    A poisoned tensor is a changed copy: what the user's dataset holds stays as it is. Non-finite
    values are put into the whole first entry along the first dimension (the first sample of a
    batch), so that no mask of single elements hides them.
    """

    def __init__(self, drill: Drill, tell: Tell) -> None:
        self._drill = drill
        self._tell = tell
        self._value = float("inf") if drill.what == "inf" else float("nan")
        self._armed = False
        self.done = False
        self._hooks: list[Any] = []
        self._calls = self._calls_before = self._arrived = self._wanted = 0

    @property
    def poisons(self) -> bool:
        """True if what is planted is a number."""
        return self._drill.what in ("nan", "inf")

    # -- when --------------------------------------------------------------------------------------

    def step_begin(self, step: int, parameters: list[torch.Tensor], fed: int) -> None:
        """A step begins; ``fed`` is how many parameters had a gradient when an optimizer stepped
        last.
        """
        self._calls_before, self._calls = self._calls, 0
        self._armed = not self.done and step >= self._drill.step
        if self._armed and self._drill.where == "gradient":
            self._arrived, self._wanted = 0, 0 if self.poisons else (fed or len(parameters)) // 2
            self._hooks = [parameter.register_hook(self._gradient) for parameter in parameters]

    def step_end(self) -> None:
        """It is over."""
        self._armed = False
        while self._hooks:
            self._hooks.pop().remove()

    # -- where -------------------------------------------------------------------------------------

    def batch(self, batch: Any) -> Any:
        """What a loader yields goes through here."""
        if not (self._armed and not self.done and self.poisons and self._drill.where == "batch"):
            return batch
        changed, poisoned = _first_replaced(batch, self._poisoned)
        if poisoned is not None:
            self._happened("batch", "the batch that the DataLoader yielded", poisoned)
        return changed

    def entering(self, module: torch.nn.Module, args: tuple[Any, ...], *, expected: bool) -> Any:
        """A module is about to run; ``expected`` says that a loader's batch is still to come.
        Returns new arguments or None.
        """
        if (
            not self._armed
            or self.done
            or self._drill.where != "batch"
            or not torch.is_grad_enabled()
        ):
            return None
        if not self.poisons:
            self._strike("batch", f"where {_named(module)} was entered")
        if expected:
            return None
        changed, poisoned = _first_replaced(args, self._poisoned)
        if poisoned is None:
            return None
        self._happened(
            "batch",
            f"the first floating-point tensor that entered a module ({_named(module)})",
            poisoned,
        )
        return changed

    def leaving(self, module: torch.nn.Module, output: Any) -> Any:
        """A module without children has run. Returns its new output or None."""
        if not torch.is_grad_enabled():
            return None
        self._calls += 1
        due = self._calls > self._calls_before // 2
        if not self._armed or self.done or self._drill.where != "activation" or not due:
            return None
        if not self.poisons:
            self._strike("activation", f"in the forward pass, after {_named(module)}")
        changed, poisoned = _first_replaced(output, self._poisoned)
        if poisoned is None:
            return None
        self._happened("activation", f"the output of {_named(module)}", poisoned)
        return changed

    def _gradient(self, gradient: torch.Tensor) -> torch.Tensor | None:
        if self.done or self._arrived < self._wanted:
            self._arrived += 1
            return None
        if not self.poisons:
            self._strike(
                "gradient", f"in the backward pass, after {self._arrived} gradients had arrived"
            )
        self._happened(
            "gradient", f"the gradient of a parameter of shape {list(gradient.shape)}", gradient
        )
        return self._poisoned(gradient)

    # -- what --------------------------------------------------------------------------------------

    def _poisoned(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy with the value in its first entry; gradients pass."""
        mask = torch.zeros_like(tensor.detach())
        (mask[:1] if mask.dim() else mask).fill_(self._value)
        return tensor + mask

    def _happened(self, where: str, what: str, tensor: torch.Tensor | None = None) -> None:
        self.done = True
        row = DrillInjectedRow(where=where, place=what)
        if tensor is not None:
            row.shape, row.dtype = list(tensor.shape), str(tensor.dtype)
        self._tell(row)

    def _strike(self, where: str, place: str) -> None:
        self._happened(where, place)
        if self._drill.what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise torch.OutOfMemoryError(OOM_MESSAGE)


def _named(module: torch.nn.Module) -> str:
    return type(module).__name__


def _first_replaced(
    value: Any, change: Callable[[torch.Tensor], torch.Tensor], depth: int = 6
) -> tuple[Any, Any]:
    """A copy of nested containers with the first floating-point tensor changed, and the tensor that
    was; None if there is none.
    """
    if isinstance(value, torch.Tensor):
        fits = value.dtype.is_floating_point and value.numel() > 0 and value.dim() > 0
        return (change(value), value) if fits else (value, None)
    if not depth or not isinstance(value, (Mapping, list, tuple)):
        return value, None
    pairs = list(value.items()) if isinstance(value, Mapping) else list(enumerate(value))
    for key, inner in pairs:
        changed, found = _first_replaced(inner, change, depth - 1)
        if found is not None:
            return _with(value, key, changed), found
    return value, None


def _with(container: Any, key: Any, item: Any) -> Any:
    if isinstance(container, tuple):
        items = [*container[:key], item, *container[key + 1 :]]
        return type(container)(*items) if hasattr(container, "_fields") else tuple(items)
    copy = list(container) if isinstance(container, list) else dict(container)
    copy[key] = item
    return copy
