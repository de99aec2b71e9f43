"""Moving averages of weights that the program keeps, and that no checkpoint of its training has."""

from __future__ import annotations

import contextlib
import re
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.live_objects import instances_of_user, live_instances, one_look
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, tensors_of
from auditor.recordings.schema.graph import CensusRow

NAMED = re.compile(
    r"ema|avg|averag|swa|shadow|slow|teacher|target|momentum_(net|enc|model)", re.IGNORECASE
)
"""Keys of a checkpoint that may hold one."""

LINES, TENSORS, DEEPEST = 16, 20_000, 6
"""Lines that save, and what of a checkpoint is looked at."""

PLAIN: frozenset[type] = frozenset({dict, OrderedDict, list})

FOLLOWED, SAMPLED = 16, 4096
"""Averages that are followed, and numbers of each."""

ALONG, FEWEST = 0.7, 3
"""Cosine between a change and the way to the weights, and steps with such a change."""

_Tensors = dict[Any, torch.Tensor]


@dataclass
class _Save:
    """What a line saved, without states of optimizers."""

    places: set[int] = field(default_factory=set)
    shapes: set[torch.Size] = field(default_factory=set)
    """Of tensors that are no trained weights."""
    resumes: bool = False
    named: bool = False
    left: int = TENSORS


@dataclass
class _Average:
    """What may be one: how to get a tensor of it, and the weight that it should follow."""

    tensor: Callable[[], Any]
    weight: Callable[[], Any]
    name: str
    before: torch.Tensor | None = None
    wanted: torch.Tensor | None = None
    """It and the weight, a step ago."""
    moved: int = 0
    copied: int = 0


class UnsavedAveragesProbe(OptimizerProbe):
    """Writes ``census``: a row for each line that saves weights with their optimizer's state, and not
    the average of them that the program keeps. Averages are looked for once such a line has run.
    """

    name = "unsaved_averages"
    parts = ("census",)
    passes = frozenset({"loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._optimizers = weakref.WeakSet[Optimizer]()
        self._saves: dict[int, _Save] = {}
        self._averages: list[_Average] = []
        self._looked = self._asked = False

    def install(self) -> None:
        """Notice what is saved, and steps."""
        super().install()
        told = self.guarded(self._saving)

        def save(original: Callable[..., Any], obj: Any, *args: Any, **kwargs: Any) -> Any:
            told(obj)
            return original(obj, *args, **kwargs)

        self._always.code(torch.save, save)  # type: ignore[arg-type]  # it is a function

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """Its parameters are trained."""
        self._optimizers.add(optimizer)

    def step_end(self) -> None:
        if any(each.resumes for each in self._saves.values()):
            if not self._looked:
                self._looked = True
                with one_look():
                    models = self._models()
                    self._find(models, self._held())
                    self._find_copies(models)
            for each in self._averages:
                _watch(each)

    def stop(self) -> None:
        super().stop()
        averages, self._averages, self._looked = self._averages, [], False
        saves = self._saves.values()
        for each in averages:
            weight, tensor = each.weight(), each.tensor()
            if weight is None or tensor is None or each.copied or each.moved < FEWEST:
                continue
            if any(save.named or save.left <= 0 or tensor.shape in save.shapes for save in saves):
                continue
            place = _place(weight)
            lines = [
                at for at, save in self._saves.items() if save.resumes and place in save.places
            ]
            if lines:
                row = CensusRow(kind="unsaved", at=lines[0], name=each.name)
                row.steps = each.moved
                self.context.add(row)
                return

    def uninstall(self) -> None:
        super().uninstall()
        self._saves.clear()

    # -- what is saved -----------------------------------------------------------------------------

    def _saving(self, obj: Any) -> None:
        at = self.context.frames.here()
        if (
            at is None
            or not self._optimizers
            or (at not in self._saves and len(self._saves) >= LINES)
        ):
            return
        trained = {_place(each) for optimizer in self._optimizers for each in tensors_of(optimizer)}
        save = self._saves.setdefault(at, _Save())
        save.left = TENSORS
        _walk(obj, save, trained, DEEPEST)
        if save.resumes and not self._asked and self.context.pass_name in ("warmup", "loud"):
            self._asked = True
            frames = self.context.frames.user_frames(sys._getframe(1))
            self._find(self._models(), _in_frames(frames))

    # -- what may be an average --------------------------------------------------------------------

    def _held(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """What the program has by name in its modules and objects."""
        modules = list(self.context.frames.user_modules())
        owners = [*map(weakref.ref, modules), *instances_of_user(modules)]
        for owner in owners:
            for name in list(getattr(owner(), "__dict__", ())):
                yield name, partial(_attribute, owner, name)

    def _models(self) -> list[tuple[nn.Module, _Tensors]]:
        """Modules that are trained, the largest first, with what they hold by name."""
        trained = {id(each) for optimizer in self._optimizers for each in tensors_of(optimizer)}
        found = [(module, _named(module)) for module in live_instances(nn.Module)]
        models = [each for each in found if any(id(one) in trained for one in each[1].values())]
        return sorted(models, key=lambda each: -len(each[1]))

    def _find_copies(self, models: list[tuple[nn.Module, _Tensors]]) -> None:
        kinds = {type(model) for model, _ in models}
        own = {id(each) for _, named in models for each in named.values()}
        for module in live_instances(nn.Module):
            named = _named(module) if type(module) in kinds else {}
            if named and not any(id(each) in own for each in named.values()):
                same = (each for model, each in models if type(model) is type(module))
                weights = next((each for each in same if _alike(named, each)), None)
                if weights is not None:
                    held_by = weakref.ref(named[_largest(named)])
                    self._add(type(module).__name__, held_by, named, weights)

    def _find(
        self,
        models: list[tuple[nn.Module, _Tensors]],
        held: Iterator[tuple[str, Callable[[], Any]]],
    ) -> None:
        for name, get in held:
            value = get()
            tensors = _tensors(value) if type(value) in PLAIN else {}
            for _, named in models if len(tensors) > 1 else ():
                weights = dict(enumerate(named.values())) if isinstance(value, list) else named
                if _alike(tensors, weights):
                    key = _largest(tensors)
                    self._add(name, partial(_of, get, key), tensors, weights)
                    break

    def _add(self, name: str, get: Callable[[], Any], own: _Tensors, weights: _Tensors) -> None:
        key = _largest(own)
        if own[key] is not weights[key] and len(self._averages) < FOLLOWED:
            self._averages.append(_Average(get, weakref.ref(weights[key]), name))


def _in_frames(frames: list[FrameType]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What functions have by name. Of it only the tensors are held, and weakly."""
    for frame in frames:
        for name, value in list(frame.f_locals.items()):
            if type(value) in PLAIN and 1 < len(value) < TENSORS:
                kind = list if isinstance(value, list) else dict
                weak = {key: weakref.ref(each) for key, each in _tensors(value).items()}
                yield name, partial(_alive, kind, weak)


def _alive(kind: type, weak: dict[Any, Any]) -> Any:
    held = {key: ref() for key, ref in weak.items()}
    return held if kind is dict else list(held.values())


def _of(get: Callable[[], Any], key: Any) -> Any:
    value = get()
    there = key in value if isinstance(value, dict) else value is not None and key < len(value)
    return value[key] if there else None


def _attribute(owner: Callable[[], Any], name: str) -> Any:
    return getattr(owner(), "__dict__", {}).get(name)


def _tensors(value: Any) -> _Tensors:
    items = (
        enumerate(value)
        if isinstance(value, list)
        else value.items()
        if isinstance(value, dict)
        else ()
    )
    return {key: each for key, each in items if isinstance(each, torch.Tensor)}


def _walk(value: Any, save: _Save, trained: set[int], deep: int) -> None:
    save.left -= 1
    if save.left <= 0 or deep < 0:
        save.left = 0
        return
    if isinstance(value, torch.Tensor):
        place = _place(value)
        save.places.add(place)
        if place not in trained:
            save.shapes.add(value.shape)
    elif isinstance(value, dict):
        save.named = save.named or any(isinstance(k, str) and NAMED.search(k) for k in value)
        if {"state", "param_groups"} <= value.keys():
            save.resumes = True
        else:
            for each in value.values():
                _walk(each, save, trained, deep - 1)
    elif isinstance(value, list | tuple):
        for each in value:
            _walk(each, save, trained, deep - 1)
    elif not isinstance(value, str | int | float | bytes | type | None):
        for each in list(getattr(value, "__dict__", {}).values()):
            _walk(each, save, trained, deep - 1)


def _named(module: nn.Module) -> _Tensors:
    named = _Tensors()
    with contextlib.suppress(Exception):  # one that is half made
        named.update(nn.Module.named_parameters(module))
    return {} if any(map(is_lazy, named.values())) else named


def _place(tensor: torch.Tensor) -> int:
    """Where its values lie; 0 of what has none, or no plain ones."""
    try:
        return tensor.data_ptr()
    except (RuntimeError, ValueError, NotImplementedError):
        return 0


def _alike(tensors: _Tensors, weights: _Tensors) -> bool:
    shapes = {key: each.shape for key, each in weights.items()}
    same = all(shapes.get(key) == each.shape for key, each in tensors.items())
    return bool(tensors) and same and 2 * len(tensors) >= len(weights)


def _largest(tensors: _Tensors) -> Any:
    return max(tensors, key=lambda key: tensors[key].numel())


def _watch(average: _Average) -> None:
    """Did it move to the weight, or become a copy of it?"""
    tensor, weight = average.tensor(), average.weight()
    if tensor is None or weight is None:
        return
    now, wanted = (each.detach().reshape(-1)[:SAMPLED].double() for each in (tensor, weight))
    before, average.before = average.before, now.clone()
    last, average.wanted = average.wanted, wanted.clone()
    if torch.equal(now, wanted) or (last is not None and torch.equal(now, last)):
        average.copied += 1
    elif before is not None and not torch.equal(now, before):
        change, way = now - before, wanted - before
        along = torch.nn.functional.cosine_similarity(change, way, dim=0)
        average.moved += bool(along >= ALONG)
