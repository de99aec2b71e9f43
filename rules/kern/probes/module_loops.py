"""Modules that are called turn after turn with pieces of a tensor that one call takes."""

import sys
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.instruments.module_stack import keep_hooks
from auditor.capture.instruments.plain_tensor import tensors
from auditor.capture.instruments.torch_private.tensors import base_of, version_of
from auditor.capture.instruments.torch_private.training import modules_of, own_buffers
from auditor.capture.instruments.user_frames import Path, path_of
from auditor.capture.probes.base import Context, Probe

from ..rows import ModuleLoopRow

TURNS = 8
"""Calls in one step from which a row is written."""

SERIES = 256
"""Lines and modules that are followed in one step."""

LOOKED_AT = 3
"""Calls before which the state of the module is compared: what keeps one changes it in each."""

ITEMS = 64
"""Items of a container in a module that are compared."""

_CALL = nn.Module.__call__.__code__
_MODULES = nn.Module.__call__.__globals__

CELLS = (nn.GRUCell, nn.LSTMCell, nn.RNNCell)

_KEYS = frozenset(vars(nn.Module()))

Seen = tuple[Any, ...]
"""What is remembered of one argument: of a tensor where it lies, its offset, shape and version."""


@dataclass
class _Series:
    """Calls of one module by the same lines in one step. ``broken``: no one call does the same."""

    module: str
    path: Path
    recurrent: bool
    n: int = 0
    us: float = 0.0
    elements: int = 0
    first: list[Seen] = field(default_factory=list)
    offsets: list[set[int]] = field(default_factory=list)
    state: Any = None
    backwards: int = 0
    broken: bool = False
    output: list[weakref.ref[torch.Tensor]] = field(default_factory=list)


class ModuleLoopsProbe(Probe):
    """Writes ``turns``: per step, one row for each series of calls whose tensors are pieces of one
    tensor each, or the same ones every time. Of a recurrent cell, whose state is what the call
    before returned.
    """

    name = "turns"
    passes = frozenset({"numbers"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.backwards = 0
        """Those of the step so far."""
        self.series: dict[tuple[Path, int], _Series] = {}
        self.running: list[tuple[nn.Module, _Series | None, int]] = []
        """Calls that have not returned, outermost first."""
        self._walking = 0
        self._began_ns = self._backward_ns = self._walks_since_ns = 0

    def step_end(self) -> None:
        step_us = self.step_us
        for each in self.series.values():
            if each.path and each.n >= TURNS and not each.broken and any(_cut(each)):
                self.context.add(
                    ModuleLoopRow(
                        lines=list(each.path),
                        module=each.module,
                        recurrent=each.recurrent,
                        n=each.n,
                        elements=each.elements,
                        us=each.us,
                        step_us=step_us,
                    )
                )

    @property
    def step_us(self) -> float:
        """Of the step so far, backward left out."""
        return (time.perf_counter_ns() - self._began_ns - self._backward_ns) / 1e3

    def start(self) -> None:
        super().start()
        self._walking = 0
        entering = module_hooks.register_module_forward_pre_hook(self.guarded(self._enter))
        leaving = module_hooks.register_module_forward_hook(
            self.guarded(self._leave), always_call=True
        )
        keep_hooks(self._patches, entering, leaving)

    def stop(self) -> None:
        super().stop()
        self.step_begin()

    def step_begin(self) -> None:
        self.series.clear()
        self.running.clear()
        self.backwards = self._backward_ns = 0
        self._began_ns = time.perf_counter_ns()

    def backward_begins(self, call: Backward) -> None:
        """Calls before it and behind it cannot be one."""
        self.backwards += 1
        self._walking += 1
        if self._walking == 1:
            self._walks_since_ns = time.perf_counter_ns()

    def backward_ends(self, call: Backward) -> None:
        """Checkpointing runs modules again meanwhile."""
        self._walking -= 1
        if self._walking == 0:
            self._backward_ns += time.perf_counter_ns() - self._walks_since_ns

    def _enter(self, module: nn.Module, args: Any) -> None:
        if self.context.in_step and not self._walking:
            series = self._of(module, args)
            if series is not None:
                self._add(series, module, args)
            self.running.append((module, series, time.perf_counter_ns()))

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        while self.running:
            running, series, began_ns = self.running.pop()
            if running is not module:
                continue
            if series is not None:
                series.us += (time.perf_counter_ns() - began_ns) / 1e3
                if series.recurrent:  # what the cell returned is its next state
                    series.output = [weakref.ref(each) for each in tensors((output,))]
            return

    def _of(self, module: nn.Module, args: Any) -> _Series | None:
        """The series of a call; None without a piece or parameters: augmentations may draw."""
        if not any(_is_piece(each) for each in tensors((args,))):
            return None
        if next(module.parameters(), None) is None:
            return None
        path = path_of(self.context.frames)
        known = self.series.get((path, id(module)))
        if known is None and path and len(self.series) < SERIES:
            inside, name = self._inside(), type(module).__name__
            lines = path[len(path) - inside :]
            known = _Series(name, lines, type(module) in CELLS, backwards=self.backwards)
            self.series[path, id(module)] = known
        return known

    def _inside(self) -> int:
        """How many user lines around the call run in the module that makes it; else all."""
        frame: FrameType | None = sys._getframe(1)
        lines, calls = 0, 0
        while frame is not None and calls < 2:
            calls += frame.f_globals is _MODULES and frame.f_code is _CALL
            lines += self.context.frames.is_user_frame(frame)
            frame = frame.f_back
        return lines

    def _add(self, series: _Series, module: nn.Module, args: Any) -> None:
        series.n += 1
        if series.broken:
            return
        given = args[:1] if series.recurrent else args
        seen = [_seen(each) for each in given]
        if series.n == 1:
            series.first, series.state = seen, state_of(module)
            series.offsets = [set() for _ in seen]
            series.elements = max(each.numel() for each in tensors((given,)))
        same = len(seen) == len(series.first) and series.backwards == self.backwards
        if (
            not same
            or not all(map(_alike, series.first, seen))
            or (series.n <= LOOKED_AT and state_of(module) != series.state)
            or (series.recurrent and series.n > 1 and not _handed_on(series.output, args[1:]))
        ):
            series.broken = True
        else:
            for offsets, each in zip(series.offsets, seen, strict=True):
                offsets.add(each[2] if each[0] == "piece" else 0)


def _cut(series: _Series) -> Iterator[bool]:
    """For each argument: it is another piece in each call. Pieces that come twice break it."""
    for first, offsets in zip(series.first, series.offsets, strict=True):
        yield first[0] == "piece" and len(offsets) == series.n


def _seen(value: Any) -> Seen:
    if not isinstance(value, torch.Tensor):
        plain = value is None or isinstance(value, (bool, int, float, str))
        return ("plain", value) if plain else ("other", id(value))
    where, shape = value.untyped_storage().data_ptr(), tuple(value.shape)
    kind = "piece" if _is_piece(value) else "tensor"
    return (kind, where, value.storage_offset(), shape, value.stride(), version_of(value))


def _alike(first: Seen, now: Seen) -> bool:
    if first[0] == "piece" == now[0]:
        return first[1] == now[1] and first[3:] == now[3:]
    return first == now


def _is_piece(tensor: torch.Tensor) -> bool:
    """A view of a part of another tensor."""
    if tensor.layout is not torch.strided:
        return False
    base = base_of(tensor)
    return base is not None and 0 < tensor.numel() < base.numel()


def _handed_on(output: list[weakref.ref[torch.Tensor]], state: Any) -> bool:
    given = tensors((state,))
    return len(given) == len(output) > 0 and all(
        each is reference() for each, reference in zip(given, output, strict=True)
    )


def state_of(module: nn.Module) -> list[Any]:
    """What the module and its parts keep between calls: tensors with versions, and values."""
    found: list[Any] = []
    for part in modules_of(module):
        held = [value for key, value in vars(part).items() if key not in _KEYS]
        for value in (*held, *own_buffers(part).values()):
            tensor = isinstance(value, torch.Tensor)
            found.append((id(value), version_of(value) if tensor else _items(value)))
    return found


def _items(value: Any) -> tuple[int, ...]:
    held = value.values() if isinstance(value, dict) else value
    return tuple(map(id, islice(held, ITEMS))) if isinstance(value, (list, dict, tuple)) else ()
