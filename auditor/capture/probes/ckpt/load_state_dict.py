"""States loaded before the first step: non-finite tensors, rates that they brought back."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.instruments.loader_workers import size_of
from auditor.capture.instruments.plain_tensor import plain, tensors
from auditor.capture.instruments.storages import storage_bytes, storage_key
from auditor.capture.instruments.torch_private.compiler import HELD
from auditor.capture.instruments.user_frames import path_of
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, groups_of
from auditor.capture.probes.step.clock import RunQueue
from auditor.recordings.schema.data import ModuleLoadRow, OptimizerLoadRow, RateGroup, SaveRow

DEEP = 3
"""Dictionaries in dictionaries that are looked into."""


class TorchSaveProbe(Probe):
    """Writes ``saves``. Its code is swapped in place, so that names taken before count."""

    name = "saves"
    passes = frozenset({"quiet"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._queue = RunQueue()
        self._looked: set[int] = set()

    def start(self) -> None:
        self._looked.clear()
        super().start()
        self._patches.code(cast("FunctionType", torch.save), self._save)

    def stop(self) -> None:
        super().stop()
        self._queue.close()

    def _save(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        here = self.in_step  # a save on another thread does not hold it
        at = self.context.frames.here() if here else None
        if at is None:
            return original(*args, **kwargs)
        stack = list(path_of(self.context.frames))
        file = args[1] if len(args) > 1 else kwargs.get("f")
        path = None
        if isinstance(file, (str, bytes, os.PathLike)):
            path = os.path.abspath(os.fsdecode(file))
        replaced = path is not None and size_of(path) > 0
        start = self._queue.mark()
        result = original(*args, **kwargs)
        us = self._queue.own_us(start)
        size = None if path is None else size_of(path)
        row = SaveRow(at=at, us=us, path=path, replaced=replaced, bytes=size, stack=stack)
        if at not in self._looked:
            self._looked.add(at)
            try:
                self._look(row, args[0] if args else kwargs.get("obj"))
            except Exception as error:  # a mapping of the user's
                self.missed(error)
        self.context.add(row)
        return result

    def _look(self, row: SaveRow, saved: Any) -> None:
        """Is a name in it one of a compiled module? How much lies in its storages beside it?"""
        if COMPILED_CODE.tells_of_calls:
            names = (name for name in _tensor_names(saved) if HELD in name.split("."))
            row.compiled = next(names, "")
        beside: dict[int, int] = {}
        for each in tensors((saved,)):
            key, size = storage_key(each), storage_bytes(each)
            if key is not None and size is not None:
                beside[key] = beside.get(key, size) - each.nbytes
        row.beside = sum(each for each in beside.values() if each > 0)


def _tensor_names(saved: Any, deep: int = DEEP) -> Iterator[str]:
    """Names of tensors in dictionaries."""
    if not isinstance(saved, Mapping):
        return
    for name, value in saved.items():
        if isinstance(value, torch.Tensor) and isinstance(name, str):
            yield name
        elif deep > 1:
            yield from _tensor_names(value, deep - 1)


RATES = ("lr", "initial_lr", "max_lr")
"""What torch's optimizers and schedulers keep of a rate in a parameter group."""

NAMED = 5
"""Tensors that are named; the rest are counted."""

Rates = list[dict[str, float]]
"""Of each parameter group."""


@dataclass
class _Loaded:
    """An optimizer whose state was loaded, before it steps for the first time."""

    optimizer: Optimizer
    at: int
    before: Rates
    after: Rates


class LoadStateDictProbe(OptimizerProbe):
    """Writes ``loads``: of a module's state where it is not finite, of an optimizer's when it then
    steps.

    It does not look inside a step: a program that goes back to a snapshot there is neither slowed
    nor judged.
    """

    name = "loads"
    passes = frozenset()
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._loaded: dict[int, _Loaded] = {}
        self._made: WeakKeyDictionary[Optimizer, int | None] = WeakKeyDictionary()

    def install(self) -> None:
        super().install()
        self.context.writer.touch("loads")
        self._always.around(Optimizer, "__init__", before=self._is_made)
        for owner, after in (
            (torch.nn.Module, self._module_loaded),
            (Optimizer, self._optimizer_loaded),
        ):
            self._always.attribute(
                owner, "load_state_dict", self._around(owner.load_state_dict, after)
            )

    def _is_made(self, optimizer: Optimizer, *_: Any, **__: Any) -> None:
        with contextlib.suppress(TypeError):  # a class of the user's that has no hash
            self._made[optimizer] = self.context.frames.here()

    def uninstall(self) -> None:
        super().uninstall()
        self._loaded.clear()

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """The first step since the load: what the program set after it is in the groups."""
        loaded = self._loaded.pop(id(optimizer), None)
        if loaded is None or loaded.optimizer is not optimizer:
            return
        bad = [
            f"{key} of parameter {n}"
            for n, state in enumerate(list(optimizer.state.values()))
            for key, value in state.items()
            if _nonfinite(value)
        ]
        groups = [
            RateGroup(before=b, after=a, first=f)
            for b, a, f in zip(loaded.before, loaded.after, _rates(optimizer), strict=False)
        ]
        self.context.add(
            OptimizerLoadRow(
                at=loaded.at,
                owner=type(optimizer).__name__,
                bad=len(bad),
                tensors=bad[:NAMED],
                groups=groups,
                default=_default(type(optimizer)),
                made_at=self._made.get(optimizer),
            )
        )

    def _around(
        self, original: Callable[..., Any], loaded: Callable[[Any, int, Rates], None]
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def load_state_dict(owner: Any, *args: Any, **kwargs: Any) -> Any:
            at = None if self.context.in_step else self.context.frames.here()
            before: Rates = []
            self.guarded(lambda: before.extend(_rates(owner)))()
            result = original(owner, *args, **kwargs)
            if at is not None:
                self.guarded(loaded)(owner, at, before)
            return result

        return load_state_dict

    def _module_loaded(self, module: torch.nn.Module, at: int, before: Rates) -> None:
        bad = [
            name for name, tensor in module.state_dict(keep_vars=True).items() if _nonfinite(tensor)
        ]
        if bad:
            self.context.add(
                ModuleLoadRow(at=at, owner=type(module).__name__, bad=len(bad), tensors=bad[:NAMED])
            )

    def _optimizer_loaded(self, optimizer: Optimizer, at: int, before: Rates) -> None:
        earlier = self._loaded.get(id(optimizer))
        self._loaded[id(optimizer)] = _Loaded(
            optimizer, at, before if earlier is None else earlier.before, _rates(optimizer)
        )


def _rates(owner: Any) -> Rates:
    groups = groups_of(owner) if isinstance(owner, Optimizer) else []
    return [
        {key: float(group[key]) for key in RATES if isinstance(group.get(key), (int, float))}
        for group in groups
    ]


def _default(kind: type[Optimizer]) -> float | None:
    """The rate of an optimizer that is given none; None if one must be given."""
    rate = inspect.signature(kind).parameters.get("lr")
    return (
        float(rate.default) if rate is not None and isinstance(rate.default, (int, float)) else None
    )


def _nonfinite(value: Any) -> bool:
    """NaN anywhere, or infinity in what is no mask (minus infinity and zero)."""
    if (
        not isinstance(value, torch.Tensor)
        or value.is_meta  # a sketch of a model, as from_pretrained makes: it holds no values
        or not value.is_floating_point()
        or value.layout is not torch.strided
    ):
        return False
    values = plain(value.detach())
    kept = torch.where(values == -torch.inf, 0.0, values)
    return not bool(torch.isfinite(kept).all())
