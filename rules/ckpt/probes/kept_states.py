"""States of modules that the program keeps while an optimizer changes the tensors in them."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.torch_private.tensors import version_of
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, PerOptimizer, tensors_of

from ..rows import KeptStateRow

FOLLOWED = 16
"""Upper bound on followed states: the newest ones that the program keeps."""

OPTIMIZERS = 64

SAMPLED = 4
"""Tensors of a state that are followed, evenly spread."""


@dataclass
class _State:
    """What one ``state_dict()`` returned: some tensors, with torch's count of their changes."""

    row: KeptStateRow
    tensors: list[weakref.ref[torch.Tensor]]
    versions: list[int]
    steps: int = 0
    trained: dict[int, bool] = field(default_factory=dict)
    """By number of an optimizer: whether it steps these tensors."""

    @classmethod
    def of(cls, row: KeptStateRow, tensors: list[torch.Tensor]) -> _State:
        return cls(row, [weakref.ref(each) for each in tensors], _versions(tensors))

    @property
    def kept(self) -> list[torch.Tensor]:
        held = [tensor for each in self.tensors if (tensor := each()) is not None]
        return held if len(held) == len(self.tensors) else []


class KeptStatesProbe(OptimizerProbe):
    """Writes ``states``: a row per line whose state was kept over a step that changed it."""

    name = "states"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._inside = False
        self._states: list[_State] = []
        self._numbers = PerOptimizer[int](OPTIMIZERS)
        self._rows: dict[int, KeptStateRow] = {}

    def install(self) -> None:
        super().install()
        module = torch.nn.Module
        taken, loading = self.guarded(self._taken), self.guarded(self._loading)
        take, load = module.state_dict, module.load_state_dict

        @functools.wraps(take)
        def state_dict(owner: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._inside or args or kwargs:
                return take(owner, *args, **kwargs)
            self._inside = True  # its children follow
            try:
                state = take(owner)
            finally:
                self._inside = False
            taken(owner, state)
            return state

        @functools.wraps(load)
        def load_state_dict(owner: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._states:
                loading(owner, args[0] if args else kwargs.get("state_dict"))
            return load(owner, *args, **kwargs)

        self._always.attribute(module, "state_dict", state_dict)
        self._always.attribute(module, "load_state_dict", load_state_dict)

    def uninstall(self) -> None:
        super().uninstall()
        self._states.clear()

    def stop(self) -> None:
        rows, self._rows = self._rows, {}
        self._states.clear()
        for row in rows.values():
            if row.steps:
                self.context.add(row)

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """Is a state still kept, and are its values others by now?"""
        for state in tuple(self._states):
            kept = state.kept
            if not kept:
                self._states.remove(state)
            elif self._trains(optimizer, state, kept) and _versions(kept) != state.versions:
                state.versions = _versions(kept)
                state.steps += 1
                state.row.steps = max(state.row.steps, state.steps)

    def _trains(self, optimizer: Optimizer, state: _State, kept: list[torch.Tensor]) -> bool:
        number = self._numbers.of(optimizer, lambda: len(list(self._numbers)))
        if number is None:
            return False
        if number not in state.trained:
            stepped = {_address(tensor) for tensor in tensors_of(optimizer)}
            state.trained[number] = any(_address(tensor) in stepped for tensor in kept)
        return state.trained[number]

    def _taken(self, owner: torch.nn.Module, state: Any) -> None:
        if not isinstance(state, Mapping):
            return
        at = self.context.frames.here()
        trained = {_address(each) for each in owner.parameters() if each.requires_grad} - {0}
        tensors = [
            tensor
            for tensor in state.values()
            if type(tensor) is torch.Tensor and _address(tensor) in trained
        ]
        if at is None or not tensors:
            return
        name = type(owner).__name__
        new = KeptStateRow(at=at, module=name, taken=0, steps=0, loaded=0, loaded_at_once=0)
        row = self._rows.setdefault(at, new)
        row.taken += 1
        chosen = tensors[:: -(-len(tensors) // SAMPLED)]
        alive = [each for each in self._states if each.kept]
        self._states = [*alive, _State.of(row, chosen)][-FOLLOWED:]

    def _loading(self, owner: torch.nn.Module, given: Any) -> None:
        """The values that a module has already are loaded into it, as its older ones."""
        if not isinstance(given, Mapping):
            return
        tensors = [each for each in given.values() if isinstance(each, torch.Tensor)]
        held, places = {id(each) for each in tensors}, {_address(each) for each in tensors}
        if not all(_address(parameter) in places for parameter in owner.parameters()):
            return
        for state in self._states:
            kept = state.kept
            if not kept or not all(id(each) in held for each in kept):
                continue
            if not state.steps:
                state.row.loaded_at_once += 1
            elif _versions(kept) == state.versions:  # not written since the step
                state.row.loaded += 1
                state.row.loaded_at = self.context.frames.here()


def _address(tensor: torch.Tensor) -> int:
    """Where its values lie; 0 of what has none, or no plain ones (lazy, sparse, on no device)."""
    try:
        return tensor.data_ptr()
    except (RuntimeError, ValueError, NotImplementedError):
        return 0


def _versions(tensors: list[torch.Tensor]) -> list[int]:
    return [version_of(each) for each in tensors]
