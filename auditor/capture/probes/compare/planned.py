"""A run of ``audit plan``: what is changed without an edit, and what its step is made of."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sized
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeGuard, cast

import torch
from torch import nn
from torch.optim.optimizer import Optimizer
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, RandomSampler

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.autograd import running_backward
from auditor.capture.instruments.user_frames import outwards
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.data.dataloader_facts import LargestBatches, tensors_in
from auditor.recordings.schema.other_runs import (
    PlannedBlocksRow,
    PlannedChangeRow,
    PlannedInputRow,
    PlannedOptimizerRow,
)
from auditor.runs.plan import Change

# -- call places -----------------------------------------------------------------------------------
# Whether a call comes from a line of the program's.


def comes_from(frame: FrameType | None, places: Collection[tuple[str, int]]) -> bool:
    """Whether the frame, or one that called it, is at one of these places: real path and line."""
    lines = {line for _, line in places}
    return any(
        each.f_lineno in lines
        and (os.path.realpath(each.f_code.co_filename), each.f_lineno) in places
        for each in outwards(frame)
    )


# -- planned ---------------------------------------------------------------------------------------

PART = "planned"
TENSORS, CALLS = 8, 8
"""Tensors of a call, and calls of outermost modules in a step, that are written down."""

Call = Callable[..., Any]


class PlannedChangeProbe(Probe):
    """Writes ``planned``. Changes what :class:`auditor.runs.plan.Change` names, from the start."""

    name = "planned"
    parts = (PART,)
    passes = frozenset({"warmup", "loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._change = context.plan.purpose_as(Change) or Change()
        self._depth = 0
        self._autocast: Any = None
        self._inputs: list[PlannedInputRow] = []
        self._seen: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._blocks: dict[type, Blocks] = {}
        self._called_at: dict[type, int | None] = {}
        self._optimizers: weakref.WeakKeyDictionary[Optimizer, int | None] = (
            weakref.WeakKeyDictionary()
        )
        self._blocks_of: set[Any] = set()
        self._done: Counter[str] = Counter()
        self._loaders = ResizedLoaders(self._change, lambda: self._done.update(["batch"]))
        self._largest: LargestBatches | None = None

    # -- a run -------------------------------------------------------------------------------------

    def install(self) -> None:
        self._always.attribute(nn.Module, "__call__", self._around(nn.Module.__call__))
        for kind, takes in optimizer_classes():
            given = {key: on for key, on in self._change.optimizer.items() if key in takes}
            if takes:
                self._always.attribute(kind, "__init__", self._making(kind, given))
        if self._change.loaders:
            self._loaders.install(self._always)
        self._always.on_undo(self._leave_autocast)
        self.watch_backward(self._always)

    def start(self) -> None:
        """Write from now on; backwards are told of all along."""
        self.context.writer.touch(PART)

    def step_begin(self) -> None:
        super().step_begin()
        self._inputs.clear()
        if self._change.largest and self._largest is None and self.context.pass_name == "loud":
            self._largest = LargestBatches(self.context, self._always)

    def step_end(self) -> None:
        self._leave_autocast()
        for row in self._inputs:
            self.context.add(row)
        self._inputs.clear()
        for kind, blocks in self._blocks.items():
            at = self._called_at.get(kind)
            if kind not in self._blocks_of and kind in self._called_at:
                self._blocks_of.add(kind)
                self.context.add(
                    PlannedBlocksRow(name=blocks.name, n=blocks.n, bytes=blocks.size, at=at)
                )
        for optimizer, at in list(self._optimizers.items()):
            if id(optimizer) not in self._blocks_of:
                self._blocks_of.add(id(optimizer))
                self.context.add(_optimizer_row(optimizer, at))
        if self._largest is not None and self._largest.of:
            self._done["largest"] = self._largest.of
        for name, n in self._done.items():
            self.context.add(PlannedChangeRow(name=name, n=n))

    def backward_begins(self, call: Backward) -> None:
        """What is computed before a backward ran under autocast; the backward does not."""
        if not call.nested:
            self._leave_autocast()

    # -- calls of modules --------------------------------------------------------------------------

    def _around(self, original: Call) -> Call:
        @functools.wraps(original)
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled() or threading.get_ident() != self._thread:
                return original(module, *args, **kwargs)
            if running_backward() != -1:  # a checkpoint runs its forward again
                return original(module, *args, **kwargs)
            return self._call(original, module, args, kwargs)

        return call

    def _call(self, original: Call, module: nn.Module, args: Any, kwargs: Any) -> Any:
        if self._depth == 0:
            self._enter(module, args, kwargs)
        elif self._autocast is None and self._inputs and torch.is_autocast_enabled("cuda"):
            self._inputs[-1].autocast = True
        kind = type(module)
        if kind in self._blocks and kind not in self._called_at:
            self._called_at[kind] = self.context.frames.here()
        self._depth += 1
        try:
            wanted = self._change.checkpointed
            if bool(wanted) and module.training and class_name(type(module)) == wanted:
                self._done["checkpointed"] += 1
                forward = functools.partial(original, module, **kwargs)
                return checkpoint(forward, *args, use_reentrant=False)
            return original(module, *args, **kwargs)
        finally:
            self._depth -= 1

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        on = self._autocast is None and torch.is_autocast_enabled("cuda")
        if len(self._inputs) < CALLS:
            shapes = [list(each.shape) for each in tensors_in((args, kwargs), TENSORS)]
            trained = [each for each in module.parameters() if each.requires_grad]
            halvable = any(each.dtype is torch.float32 for each in trained)
            name = type(module).__qualname__
            row = PlannedInputRow(module=name, shapes=shapes, autocast=on, halvable=halvable)
            self._inputs.append(row)
        if module not in self._seen:
            self._seen.add(module)
            blocks = repeated_blocks(module)
            if blocks is not None:
                self._blocks.setdefault(blocks.kind, blocks)
        if self._change.autocast and self._autocast is None and not on:
            self._autocast = torch.autocast("cuda", dtype=getattr(torch, self._change.autocast))
            self._autocast.__enter__()
            self._done["autocast"] += 1

    def _leave_autocast(self) -> None:
        autocast, self._autocast = self._autocast, None
        if autocast is not None:
            autocast.__exit__(None, None, None)

    # -- optimizers --------------------------------------------------------------------------------

    def _making(self, kind: type[Optimizer], settings: dict[str, bool]) -> Call:
        make = kind.__init__
        signature = inspect.signature(make)

        @functools.wraps(make)
        def made(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            if settings:
                given = signature.bind(optimizer, *args, **kwargs)
                given.arguments.update(dict.fromkeys(taken_by(kind)), **settings)
                args, kwargs = given.args[1:], given.kwargs
            outermost = optimizer not in self._optimizers
            self._optimizers[optimizer] = self.context.frames.here()
            make(optimizer, *args, **kwargs)
            if settings and outermost:
                self._done["optimizer"] += 1

        return made


def _optimizer_row(optimizer: Optimizer, at: int | None) -> PlannedOptimizerRow:
    return PlannedOptimizerRow(
        name=type(optimizer).__name__,
        takes=list(taken_by(type(optimizer))),
        on=settings_of(optimizer, on=True),
        off=settings_of(optimizer, on=False),
        at=at,
    )


# -- planned facts ---------------------------------------------------------------------------------
# What a program's step is made of, as far as ``audit plan`` can change it: blocks that repeat,
# optimizers and what they take.


SHARE = 0.5
"""Share of the repeated blocks' parameters that the checkpointed class must hold."""

SETTINGS = ("foreach", "fused")
"""Arguments of torch's optimizers that choose how the same step is computed."""


@dataclass(frozen=True)
class Blocks:
    """Modules of one class in a row; bytes of the largest's parameters (``size``), of all."""

    kind: type[nn.Module]
    n: int
    size: int
    total: int

    @property
    def name(self) -> str:
        """The class, with its module."""
        return class_name(self.kind)


def class_name(kind: type) -> str:
    """``package.module:Outer.Inner``."""
    return f"{kind.__module__}:{kind.__qualname__}"


def repeated_blocks(model: nn.Module) -> Blocks | None:
    """The class of blocks that a ModuleList or Sequential of the model repeats and that holds most
    of it; None if nothing repeats. Of classes inside each other the smaller one is taken.
    """
    found: dict[type[nn.Module], dict[int, nn.Module]] = {}
    for each in model.modules():
        if isinstance(each, (nn.ModuleList, nn.Sequential)):
            for kind, children in _alike(each):
                found.setdefault(kind, {}).update((id(child), child) for child in children)
    told = [_blocks_of(kind, list(blocks.values())) for kind, blocks in found.items()]
    told = [blocks for blocks in told if blocks.total]
    most = max((blocks.total for blocks in told), default=0)
    large = [blocks for blocks in told if blocks.total >= SHARE * most]
    return max(large, key=lambda blocks: blocks.n, default=None)


def _alike(container: nn.Module) -> Iterator[tuple[type[nn.Module], list[nn.Module]]]:
    """Children of one class that are made of modules themselves, where there are several."""
    by_class: dict[type[nn.Module], list[nn.Module]] = {}
    for child in container.children():
        holder = type(child) in (nn.ModuleList, nn.ModuleDict, nn.Sequential)
        if next(child.children(), None) is not None and not holder:
            by_class.setdefault(type(child), []).append(child)
    return ((kind, children) for kind, children in by_class.items() if len(children) > 1)


def _blocks_of(kind: type[nn.Module], blocks: list[nn.Module]) -> Blocks:
    sizes = [sum(each.nbytes for each in block.parameters()) for block in blocks]
    return Blocks(kind, len(blocks), max(sizes), sum(sizes))


def optimizer_classes() -> Iterator[tuple[type[Optimizer], tuple[str, ...]]]:
    """Torch's own optimizers, and which of :data:`SETTINGS` each takes."""
    classes = [each for each in vars(torch.optim).values() if isinstance(each, type)]
    for kind in dict.fromkeys(classes):
        if issubclass(kind, Optimizer) and "__init__" in vars(kind):
            yield kind, taken_by(kind)


def taken_by(kind: type) -> tuple[str, ...]:
    """Which of :data:`SETTINGS` the class takes by name."""
    given = inspect.signature(kind.__init__).parameters  # type: ignore[misc]  # of a class, not of an instance
    return tuple(name for name in SETTINGS if name in given)


def settings_of(optimizer: Any, *, on: bool) -> list[str]:
    """Settings that are on (or off) in the optimizer's first group."""
    groups = getattr(optimizer, "param_groups", ())
    first = groups[0] if groups else {}
    return [name for name in SETTINGS if first.get(name) is on]


# -- resized loaders -------------------------------------------------------------------------------
# Loaders that are made at a line of the program with another batch size than it gives them.


BATCHES = 8
"""Batches that a dataset must be able to give: one that has fewer samples gives them again."""


class ResizedLoaders:
    """Gives loaders made at the change's lines their batch size; ``changed`` is called for each."""

    def __init__(self, change: Change, changed: Callable[[], None]) -> None:
        self._change = change
        self._changed = changed
        self._places = {(os.path.realpath(file), line) for file, line in change.loaders}
        self._samplers: weakref.WeakSet[Any] = weakref.WeakSet()
        """Those that cut batches of the new size already."""
        self._resized: set[tuple[int, int]] = set()
        """Dataset and new size of the loaders so far."""

    def install(self, patches: Patches) -> None:
        """Change what the constructor is given from now on."""
        make: Any = DataLoader.__init__
        signature = inspect.signature(make)

        @functools.wraps(make)
        def made(loader: Any, *args: Any, **kwargs: Any) -> None:
            given = signature.bind(loader, *args, **kwargs)
            meant = comes_from(sys._getframe(1), self._places)
            if meant:
                self._resize(given.arguments)
            make(*given.args, **given.kwargs)
            if meant and getattr(loader, "batch_sampler", None) is not None:
                self._samplers.add(loader.batch_sampler)

        patches.attribute(DataLoader, "__init__", made)

    def _resize(self, arguments: dict[str, Any]) -> None:
        """A loader that a framework builds from one of these has the new size already."""
        sampler = arguments.get("batch_sampler")
        if sampler is not None:
            size = getattr(sampler, "batch_size", None)
            if _is_size(size) and sampler not in self._samplers:
                sampler.batch_size = self._new(size)
                self._changed()
            return
        size, dataset = arguments.get("batch_size", 1), arguments.get("dataset")
        if _is_size(size) and (id(dataset), size) not in self._resized:
            new = arguments["batch_size"] = self._new(size)
            self._resized.add((id(dataset), new))
            _repeat(arguments, BATCHES * new)
            self._changed()

    def _new(self, size: int) -> int:
        more, less = self._change.batch
        return max(1, size * more // less)


def _repeat(arguments: dict[str, Any], enough: int) -> None:
    """Let a dataset that is too small for a few batches give its samples again."""
    dataset = arguments.get("dataset")
    if arguments.get("sampler") is not None or isinstance(dataset, IterableDataset):
        return
    try:
        samples = len(cast("Sized", dataset))
    except TypeError:  # it has no length
        return
    if not 0 < samples < enough:
        return
    shuffled = arguments.pop("shuffle", False)
    arguments["sampler"] = (
        RandomSampler(cast("Sized", dataset), num_samples=enough)
        if shuffled
        else [number % samples for number in range(enough)]
    )


def _is_size(size: Any) -> TypeGuard[int]:
    return isinstance(size, int) and not isinstance(size, bool) and size > 0
