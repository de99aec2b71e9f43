"""Modules that are called turn after turn with pieces of one tensor, which one call could take
whole.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from types import FrameType
from typing import Any

import torch
from torch import nn

from auditor.capture.instruments.plain_tensor import tensors_in
from auditor.capture.instruments.torch_private.tensors import base_of, version_of
from auditor.capture.instruments.torch_private.training import modules_of, own_buffers
from auditor.capture.probes.graph.call_paths import Path, path_of

from ..rows import ModuleLoopRow
from .timed_forwards import ForwardsProbe

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


class ModuleLoopsProbe(ForwardsProbe[_Series]):
    """Writes ``turns``: per step, one row for each series of calls whose tensors are pieces of one
    tensor each, or the same ones every time. Of a recurrent cell, whose state is what the call
    before returned.
    """

    name = "turns"
    parts = ("turns",)
    passes = frozenset({"numbers"})

    def step_end(self) -> None:
        step_us = self.step_us
        for each in self.taken():
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
                self.context.loops.add(each.path[::-1])

    def entered(self, module: nn.Module, args: Any) -> _Series | None:
        """The series of the call, with the call added."""
        series = self._of(module, args)
        if series is not None:
            self._add(series, module, args)
        return series

    def left(self, series: _Series, output: Any) -> None:
        """What a recurrent cell returned is its next state."""
        if series.recurrent:
            series.output = [weakref.ref(each) for each in tensors_in(output)]

    def _of(self, module: nn.Module, args: Any) -> _Series | None:
        """The series of this call; None where it is given no piece, or has no parameters: an
        augmentation may draw for each sample.
        """
        if not any(_is_piece(each) for each in tensors_in(args)):
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
        """How many of the user's lines around the call the module runs that makes it; all of them
        where none does.
        """
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
            series.elements = max(each.numel() for each in tensors_in(given))
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
    """The same thing again, or another piece of the same tensor, which nobody has written since."""
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
    given = list(tensors_in(state))
    return len(given) == len(output) > 0 and all(
        each is reference() for each, reference in zip(given, output, strict=True)
    )


def state_of(module: nn.Module) -> list[Any]:
    """What the module and those in it keep between calls: tensors with their versions, and plain
    values.
    """
    found: list[Any] = []
    for part in modules_of(module):
        held = [value for key, value in vars(part).items() if key not in _KEYS]
        for value in (*held, *own_buffers(part).values()):
            tensor = isinstance(value, torch.Tensor)
            found.append((id(value), version_of(value) if tensor else _items(value)))
    return found


def _items(value: Any) -> tuple[int, ...]:
    """What a container holds."""
    held = value.values() if isinstance(value, dict) else value
    return tuple(map(id, islice(held, ITEMS))) if isinstance(value, (list, dict, tuple)) else ()
