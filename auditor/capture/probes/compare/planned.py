"""A run of ``audit plan``: what is changed in the program without an edit, and what its step is made
of.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer
from torch.utils.checkpoint import checkpoint

from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS, Backward
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.autograd import running_backward
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.compare import planned_facts as facts
from auditor.capture.probes.compare.resized_loaders import ResizedLoaders
from auditor.capture.probes.data.dataloader_facts import tensors_in
from auditor.recordings.schema import (
    PlannedBlocksRow,
    PlannedChangeRow,
    PlannedInputRow,
    PlannedOptimizerRow,
)
from auditor.runs.plan import Change

PART = "planned"
TENSORS, CALLS = 8, 8
"""Tensors of a call, and calls of outermost modules in a step, that are written down."""

Call = Callable[..., Any]


class PlannedChangeProbe(Probe):
    """Writes ``planned``. Changes what :class:`auditor.runs.plan.Change` names, from the import of
    torch on: as if the program's own lines said so.
    """

    name = "planned"
    parts = (PART,)
    passes = frozenset({"warmup", "loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._change = context.change or Change()
        self._patches = Patches()
        self._depth = 0
        self._thread = threading.get_ident()
        self._autocast: Any = None
        self._inputs: list[PlannedInputRow] = []
        self._seen: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._blocks: dict[type, facts.Blocks] = {}
        self._called_at: dict[type, int | None] = {}
        self._optimizers: weakref.WeakKeyDictionary[Optimizer, int | None] = (
            weakref.WeakKeyDictionary()
        )
        self._told: set[Any] = set()
        self._done: Counter[str] = Counter()
        self._loaders = ResizedLoaders(self._change, self._batch_changed)

    # -- a run -------------------------------------------------------------------------------------

    def install(self) -> None:
        """Change loaders, calls of modules and optimizers from now on."""
        self._patches.attribute(nn.Module, "__call__", self._around(nn.Module.__call__))
        for kind, takes in facts.optimizer_classes():
            given = {key: on for key, on in self._change.optimizer.items() if key in takes}
            if takes:
                self._patches.attribute(kind, "__init__", self._making(kind, given))
        if self._change.loaders:
            self._loaders.install(self._patches)
        BACKWARD_HOOKS.add(self)

    def uninstall(self) -> None:
        """Put all back."""
        self._leave_autocast()
        BACKWARD_HOOKS.remove(self)
        self._patches.undo()

    def start(self) -> None:
        """Write from now on."""
        self.context.writer.touch(PART)

    def step_begin(self) -> None:
        """The step runs on this thread."""
        self._thread = threading.get_ident()
        self._inputs.clear()

    def step_end(self) -> None:
        """Write what the step was given, and what is new."""
        self._leave_autocast()
        for row in self._inputs:
            self.context.add(row)
        self._inputs.clear()
        for kind, blocks in self._blocks.items():
            at = self._called_at.get(kind)
            if kind not in self._told and kind in self._called_at:
                self._told.add(kind)
                self.context.add(
                    PlannedBlocksRow(name=blocks.name, n=blocks.n, bytes=blocks.size, at=at)
                )
        for optimizer, at in list(self._optimizers.items()):
            if id(optimizer) not in self._told:
                self._told.add(id(optimizer))
                self.context.add(_optimizer_row(optimizer, at))
        for name, n in self._done.items():
            self.context.add(PlannedChangeRow(name=name, n=n))

    def backward_begins(self, call: Backward) -> None:
        """What is computed before a backward ran under autocast; the backward does not."""
        if not call.nested:
            self._leave_autocast()

    def _batch_changed(self) -> None:
        self._done["batch"] += 1

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
            if self._is_checkpointed(module):
                self._done["checkpointed"] += 1
                forward = functools.partial(original, module, **kwargs)
                return checkpoint(forward, *args, use_reentrant=False)
            return original(module, *args, **kwargs)
        finally:
            self._depth -= 1

    def _is_checkpointed(self, module: nn.Module) -> bool:
        wanted = self._change.checkpointed
        return bool(wanted) and module.training and facts.class_name(type(module)) == wanted

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        on = self._autocast is None and torch.is_autocast_enabled("cuda")
        if len(self._inputs) < CALLS:
            shapes = [list(each.shape) for each in tensors_in((args, kwargs), TENSORS)]
            self._inputs.append(
                PlannedInputRow(
                    module=type(module).__qualname__,
                    shapes=shapes,
                    autocast=on,
                    halvable=facts.has_float32(module),
                )
            )
        if module not in self._seen:
            self._seen.add(module)
            blocks = facts.repeated_blocks(module)
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
                given.arguments.update(dict.fromkeys(facts.taken_by(kind)), **settings)
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
        takes=list(facts.taken_by(type(optimizer))),
        on=facts.settings_of(optimizer, on=True),
        off=facts.settings_of(optimizer, on=False),
        at=at,
    )
