"""The backward of the program's own ``autograd.Function`` against differences of its forward."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import Function

from auditor.capture.instruments.environment import host_chance_kept
from auditor.capture.instruments.monkeypatch import LOOKING
from auditor.capture.instruments.plain_tensor import tensors
from auditor.capture.probes.base import Context, Probe

from ..rows import DependenceRow
from .second_gradient import nothing_left_behind

MOST = 1 << 20
"""Numbers that a function is given: larger ones are not run again."""

DIRECTIONS = 3
"""Random directions along which both are compared."""

STEPS = (1e-4, 1e-5)
"""Relative steps of the differences: a smooth function gives the same with both."""

SMOOTH, OFF, FLAT = 1e-4, 2e-3, 1e-9
"""Relative difference of two differences of a smooth function; the one from which a backward is not
its derivative (double precision leaves 1e-6); and the slope below which a function is flat there.
"""


@dataclass(frozen=True)
class _FunctionCall:
    function: Callable[..., Any]
    name: str
    at: int
    args: tuple[Any, ...]
    places: tuple[int, ...]
    """Those of ``args`` that want a gradient."""


class FunctionBackwardsProbe(Probe):
    """Writes ``dependence``: a row for each function whose backward is not the derivative of its
    forward. The first call of each in a step is run again in double precision, behind the step.
    """

    name = "function_backwards"
    parts = ("dependence",)
    passes = frozenset({"gradients"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._calls: dict[str, _FunctionCall] = {}

    def start(self) -> None:
        super().start()
        for kind in _functions_of_user(self.context):
            self._patches.attribute(kind, "apply", self._watched(kind, kind.apply))

    def _watched(self, kind: Any, original: Callable[..., Any]) -> Callable[..., Any]:
        noted = self.guarded(self._noted)

        def apply(*args: Any, **kwargs: Any) -> Any:
            if not kwargs:
                noted(kind.__name__, original, args)
            return original(*args, **kwargs)

        return apply

    def _noted(self, name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if name in self._calls or not (self.in_step and torch.is_grad_enabled()):
            return
        places = tuple(i for i, each in enumerate(args) if _learns(each))
        at = self.context.frames.here()
        small = sum(each.numel() for each in tensors(args)) <= MOST
        alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
        if places and at is not None and small and alone:
            self._calls[name] = _FunctionCall(function, name, at, tuple(map(_copy, args)), places)

    def step_end(self) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            # a function may be made for other dtypes
            with LOOKING, nothing_left_behind(), host_chance_kept(), suppress(Exception):
                off = _deviation(call)
                if off is not None:
                    percent = max(1, round(100 * off))
                    row = DependenceRow(
                        at=call.at, kind="backward", function=call.name, n=percent, of=0
                    )
                    self.context.add(row)


def _functions_of_user(context: Context) -> Iterator[Any]:
    waiting: list[Any] = [Function]
    while waiting:
        for kind in type.__subclasses__(waiting.pop()):
            waiting.append(kind)
            code = getattr(getattr(kind, "backward", None), "__code__", None)
            if code is not None and context.frames.is_user(code.co_filename):
                yield kind


def _learns(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad and value.is_floating_point()


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    copy = value.detach().clone()
    return copy.double() if copy.is_floating_point() else copy


def _deviation(call: _FunctionCall) -> float | None:
    """How far the backward is from the derivative, relative to the larger of the two; None if it is
    it, and where no difference says: a function that is flat, has steps, or gives its input back.
    """

    def run(values: list[torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        given = list(map(_copy, call.args))
        for place, value in zip(call.places, values, strict=True):
            given[place] = value
        return [each for each in tensors((call.function(*given),)) if each.is_floating_point()]

    points = [call.args[place] for place in call.places]
    leaves = [each.clone().requires_grad_() for each in points]
    results = run(leaves)
    if not results or any(each.dtype != torch.float64 for each in results):
        return None
    if any(
        one.shape == two.shape and bool((one == two).double().mean() > 0.5)
        for one in results
        for two in leaves
    ):
        return None  # the identity, as of a reversed gradient; or a clamp
    chance = torch.Generator(points[0].device).manual_seed(1)

    def drawn(like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape, generator=chance, dtype=like.dtype, device=like.device)

    weights = [drawn(each) for each in results]
    gradients = torch.autograd.grad(results, leaves, weights, allow_unused=True)
    largest = 0.0
    for index, gradient in enumerate(gradients):
        if gradient is None:
            continue
        off, both = [], []
        for _ in range(DIRECTIONS):
            direction = drawn(points[index]) * _size(points[index])
            slopes = []
            for step in STEPS:
                ends = []
                for sign in (step, -step):
                    moved = [*points]
                    moved[index] = points[index] + sign * direction
                    given = zip(weights, run(moved), strict=True)
                    ends.append(sum(float((weight * each).sum()) for weight, each in given))
                slopes.append((ends[0] - ends[1]) / (2 * step))
            told, slope = float((gradient * direction).sum()), slopes[-1]
            if abs(slopes[0] - slope) > SMOOTH * abs(slope) or abs(slope) <= FLAT:
                return None
            off.append(told - slope)
            both.append(max(abs(slope), abs(told)))
        largest = max(largest, math.hypot(*off) / math.hypot(*both))
    return largest if largest > OFF else None


def _size(tensor: torch.Tensor) -> float:
    size = float(tensor.square().mean().sqrt())
    return size or 1.0
