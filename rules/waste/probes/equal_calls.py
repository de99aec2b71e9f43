"""Modules that a step calls again and again, with gradients off, on what they were given before."""

import time
import weakref
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.instruments.gradients_off import Place, place_of_block, watch_blocks
from auditor.capture.instruments.module_stack import keep_hooks
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.plain_tensor import content, plain, tensors
from auditor.capture.instruments.storages import storage_key
from auditor.capture.instruments.torch_private.tensors import version_of
from auditor.capture.instruments.user_frames import Path, path_of
from auditor.capture.probes.base import Context, Probe

from ...kern.probes.module_loops import state_of
from ..rows import EqualCallsRow

PLACES, STEPS = 64, 2
"""Places that are looked at, and steps of each."""

LOOKED = 8
"""Calls after the first that must be equal; later ones are counted."""

CALLS, SERIES = 4096, 256
"""Calls of a step that are looked at, and modules by lines."""

BEGINNING, MOST_BYTES = 1 << 16, 64 << 20
"""Of tensors that are compared: at first no more than the beginning, then all."""


@dataclass
class _Spot:
    """A place that turns gradients off, in how many steps, and what was called there."""

    steps: int = 0
    last: tuple[str, int] = ("", -1)
    us: float = 0.0
    series: dict[tuple[Path, int], "_Series"] = field(default_factory=dict)


class _Tensors:
    """Tensors that may come again, with the same values. Nothing but their beginnings is read until
    these were the same once.
    """

    def __init__(self, first: list[torch.Tensor]) -> None:
        self._first = [(weakref.ref(each), _version(each)) for each in first]
        self._known = _bits(first, BEGINNING)
        self._whole = False

    def come_again(self, now: list[torch.Tensor]) -> bool:
        """The same tensors, not written since, or others that are equal."""
        if len(now) == len(self._first) and all(map(_is_same, now, self._first)):
            return True
        if not self._whole and None not in self._known and self._known == _bits(now, BEGINNING):
            self._known, self._whole = _bits(now, MOST_BYTES), True
            return None not in self._known
        return self._whole and self._known == _bits(now, MOST_BYTES)


@dataclass
class _Series:
    """Calls of one module by the same lines in one step. ``broken``: one differed; ``n``: equal
    calls.
    """

    module: str
    given: _Tensors
    state: Any
    n: int = 0
    us: float = 0.0
    result: _Tensors | None = None
    broken: bool = False


class EqualCallsProbe(Probe):
    """Writes ``equal_calls``. Watches the blocks of two steps at each place, of whatever pass: an
    evaluation comes seldom.
    """

    name = "equal_calls"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._spots: dict[Place, _Spot] = {}
        self._inside: tuple[Any, _Spot, Patches, float] | None = None
        self._running: list[tuple[nn.Module, _Series | None, float]] = []
        self._calls = 0
        self._rows: list[tuple[_Spot, EqualCallsRow]] = []

    def install(self) -> None:
        watch_blocks(self._always, self._entered, self._exited, self.missed)

    def uninstall(self) -> None:
        self._leave()
        super().uninstall()
        self._spots.clear()

    def _entered(self, manager: Any, frame: FrameType) -> None:
        off = self.context.in_step and not torch.is_grad_enabled()
        if self._inside is not None or not off or COMPILED_CODE.compiles:
            return
        place = place_of_block(self.context.frames, frame)
        if place is None or (place not in self._spots and len(self._spots) >= PLACES):
            return
        spot = self._spots.setdefault(place, _Spot())
        now = self.context.pass_name, self.context.step
        if spot.last != now:
            self._harvest(spot)
            spot.last, spot.steps, spot.us, self._calls = now, spot.steps + 1, 0.0, 0
        if spot.steps > STEPS or self._calls > CALLS:
            return
        hooks = Patches()
        entering = module_hooks.register_module_forward_pre_hook(self.guarded(self._enter))
        leaving = module_hooks.register_module_forward_hook(
            self.guarded(self._returned), always_call=True
        )
        keep_hooks(hooks, entering, leaving)
        self._inside = manager, spot, hooks, time.thread_time()

    def _exited(self, manager: Any, _: FrameType) -> None:
        if self._inside is not None and self._inside[0] is manager:
            self._leave()

    def _leave(self) -> None:
        inside, self._inside = self._inside, None
        self._running.clear()
        if inside is not None:
            _, spot, hooks, began = inside
            hooks.undo()
            spot.us += (time.thread_time() - began) * 1e6

    # -- calls -------------------------------------------------------------------------------------

    def _enter(self, module: nn.Module, args: Any) -> None:
        if self._inside is None:
            return
        self._calls += 1
        if self._calls > CALLS:
            self._inside[2].undo()
            self._running.clear()
            return
        series = None
        within = any(each is not None and not each.broken for _, each, _ in self._running)
        if not within and not torch.is_grad_enabled():
            began = time.thread_time()
            series = self._of(self._inside[1], module, args)
            self._inside[1].us -= (time.thread_time() - began) * 1e6
        self._running.append((module, series, time.thread_time()))

    def _of(self, spot: _Spot, module: nn.Module, args: Any) -> _Series | None:
        """The series of a call, as far as that call does not differ; None without parameters."""
        key = path_of(self.context.frames), id(module)
        known = spot.series.get(key)
        given = tensors((args,))
        if known is None:
            if len(spot.series) < SERIES and given and next(module.parameters(), None) is not None:
                name, first = type(module).__name__, _Tensors(given)
                known = spot.series[key] = _Series(name, first, state_of(module))
        elif known.n <= LOOKED and not (known.broken or known.given.come_again(given)):
            known.broken = True
        return known

    def _returned(self, module: nn.Module, _: Any, output: Any) -> None:
        now = time.thread_time()
        while self._running:
            running, series, began = self._running.pop()
            if running is not module:
                continue  # it raised
            if series is not None and not series.broken and self._inside is not None:
                self._add(series, module, output, (now - began) * 1e6)
                self._inside[1].us -= (time.thread_time() - now) * 1e6
            return

    def _add(self, series: _Series, module: nn.Module, output: Any, us: float) -> None:
        series.n += 1
        series.us += us if series.n > 1 else 0.0
        if series.n > LOOKED + 1:
            return
        result = tensors((output,))
        if series.result is None:
            series.result, same = _Tensors(result), bool(result)
        else:
            same = series.result.come_again(result)
        series.broken = not same or state_of(module) != series.state

    # -- rows --------------------------------------------------------------------------------------

    def _harvest(self, spot: _Spot) -> None:
        """What a step that is over has shown."""
        series, spot.series = spot.series, {}
        for (path, _), each in series.items():
            if each.n > LOOKED and not each.broken:
                row = EqualCallsRow(
                    lines=list(path),
                    module=each.module,
                    n=each.n,
                    looked=LOOKED,
                    us=each.us,
                    block_us=spot.us,
                )
                self._rows.append((spot, row))

    def stop(self) -> None:
        super().stop()
        for spot in self._spots.values():
            self._harvest(spot)
        seen = set[tuple[int, ...]]()
        for spot, row in self._rows:
            row.steps, row.all = spot.steps, self.context.global_step + 1
            if tuple(row.lines) not in seen:
                self.context.add(row)
            seen.add(tuple(row.lines))
        self._rows = []


def _version(tensor: torch.Tensor) -> int:
    """-1 of a tensor that is not told when it is written (of inference mode)."""
    return -1 if tensor.is_inference() else version_of(tensor)


def _is_same(tensor: torch.Tensor, first: tuple[weakref.ref[torch.Tensor], int]) -> bool:
    return 0 <= first[1] == _version(tensor) and first[0]() is tensor


def _bits(tensors: list[torch.Tensor], most: int) -> list[Any]:
    """What is equal for equal values, of their first bytes; None if one is not plain, or large."""
    found = list[Any]()
    for each in map(plain, tensors):
        simple = type(each) in (torch.Tensor, nn.Parameter) and storage_key(each) is not None
        on_host = simple and each.device.type == "cpu" and _is_dense(each)
        known = on_host and each.nbytes <= MOST_BYTES
        bits = (hash(content(each, most)), each.dtype, each.shape, each.stride()) if known else None
        found.append(bits)
    return found


def _is_dense(tensor: torch.Tensor) -> bool:
    """Its values lie side by side, in whatever order of its dimensions (what a GRU returns)."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True
