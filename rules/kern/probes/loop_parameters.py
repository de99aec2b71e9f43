"""Which tensors that an operator is given are whole parameters or their gradients."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from auditor.capture.instruments.live_objects import live_instances, one_look
from auditor.capture.instruments.module_stack import live_modules
from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.storages import storage_key
from auditor.capture.instruments.torch_private.training import own_parameters
from auditor.capture.instruments.weakrefs import alive
from auditor.capture.probes.optim.optimizer_hooks import live_optimizers, tensors_of

FOREACH = frozenset(
    """
    abs add addcdiv addcmul clamp clamp_max clamp_min copy div exp lerp linalg_vector_norm maximum
    minimum mul neg norm pow reciprocal sign sqrt sub zero
    """.split()
)
"""Operators that torch has for a list of tensors, too: ``torch._foreach_add_`` and its like."""


class ParametersNow:
    """Parameters of modules and optimizers, where there are none all leaves that want a gradient,
    held weakly, and the storages that they and their gradients have now.
    """

    def __init__(self) -> None:
        self.stale = True
        """A backward ran since: gradients may be others."""
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self._modules: list[weakref.ref[torch.nn.Module]] = []
        self._held: list[Any] = []
        self._where: dict[tuple[int, int], tuple[int, int]] = {}

    def look(self) -> None:
        """Ask for all parameters that there are.

        Modules and optimizers are those of the first look, where there are optimizers: a program
        that updates its weights itself may make them anew in each step. Slow where it looks: asks
        all live objects.
        """
        with one_look():
            found = self._found()
        self._held = [weak for each in found.values() if (weak := _weakly(each)) is not None]
        self.stale = True

    def _found(self) -> dict[int, Any]:
        optimizers = [each for weak in self._optimizers if (each := weak()) is not None]
        modules = [part for held in self._modules if (part := held()) is not None]
        if not optimizers:
            optimizers, modules = live_optimizers(), live_modules()
            self._optimizers = list(map(weakref.ref, optimizers))
            self._modules = list(map(weakref.ref, modules))
        found = {
            id(each): each
            for module in modules
            for each in own_parameters(module).values()
            if isinstance(each, torch.Tensor)
        }
        for optimizer in optimizers:
            found.update((id(each), each) for each in tensors_of(optimizer))
        if not optimizers:  # what is updated by hand need be in no module either
            found.update(
                (id(each), each) for each in live_instances(torch.Tensor) if _trained(each)
            )
        return found

    def given_whole(self, given: list[torch.Tensor]) -> tuple[int, int] | None:
        """Which parameter an operator works on, one element for one: all that it is given has the
        parameter's shape or one element. None if it works on none so.
        """
        if self.stale:
            self._locate()
        large = [each for each in given if each.numel() != 1]
        if any(each.shape != large[0].shape for each in large[1:]):
            return None
        for each in large or given:
            place = _place_of(each)
            known = None if place is None else self._where.get(place)
            if known is not None and known[1] == each.numel():
                return place
        return None

    def _locate(self) -> None:
        self.stale = False
        self._where.clear()
        for number, weak in enumerate(self._held):
            parameter = alive(weak)
            for each in () if parameter is None else (parameter, parameter.grad):
                place = None if each is None else _place_of(plain(each))
                if place is not None:
                    self._where[place] = number, each.numel()


def _trained(tensor: torch.Tensor) -> bool:
    """A leaf that wants a gradient; not the fake ones that torch.compile keeps."""
    return tensor.requires_grad and tensor.is_leaf and not hasattr(tensor, "fake_mode")


def _weakly(tensor: torch.Tensor) -> Any:
    try:
        return weakref.ref(tensor)
    except TypeError:
        return None


def _place_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    key = storage_key(tensor)
    return None if key is None else (key, int(tensor.storage_offset()))
