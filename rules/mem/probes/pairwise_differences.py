"""Distances of all pairs that are made through one tensor of all differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from auditor.capture.instruments.storages import Storages
from auditor.capture.probes.operator_stream import Call, Operator, OperatorProbe, Subscriber

from ..rows import DifferencesRow

LEAST = 8
"""Partners of each row, and numbers of a row, from which the differences are followed."""

SUMS = frozenset({"sum", "mean"})


@dataclass(eq=False)
class Differences:
    """A tensor of the differences of all pairs, and what became of it. ``used``: something else
    was made of it, so that it is needed.
    """

    at: int
    shape: torch.Size
    nbytes: int
    graph: bool
    kind: str = ""
    """``squares`` or ``absolute``, once they were taken."""
    summed: bool = False
    used: bool = False


class PairwiseDifferencesWatch(Subscriber):
    """Follows differences of tensors broadcast against one another to their last sum."""

    in_backward = False

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        super().__init__(on_error)
        self._trails: Storages[Differences] = Storages()
        self.found: list[Differences] = []

    def wants(self, operator: Operator) -> bool:
        """All that compute."""
        return not operator.view

    def before(self, call: Call) -> bool | None:
        """A difference begins a trail; any other operator is looked at where there are some."""
        return True if self._trails or call.operator.name == "sub" else None

    def after(self, call: Call, noted: Any) -> None:
        """Begin a trail at a difference of all pairs, and follow those there are."""
        operator, args, result = call.operator, call.args, call.result
        if operator.writes or not isinstance(result, torch.Tensor):
            self._spoil(call)
        elif operator.name == "sub" and _all_pairs(args, result):
            self._spoil(call)
            if call.site is not None:
                made = Differences(call.site, result.shape, result.nbytes, call.graph)
                self.found.append(made)
                self._trails.lay(result, made)
        else:
            self._follow(call, result)

    def end_step(self) -> list[Differences]:
        """Those that were summed and nothing else, and begin anew."""
        found, self.found = self.found, []
        self._trails.clear()
        return [each for each in found if each.summed and not each.used]

    def _follow(self, call: Call, result: torch.Tensor) -> None:
        operator, args = call.operator, call.args
        trail = self._trails.of(args[0]) if _is_tensor(args[:1]) else None
        kind = _kind(operator, args) if trail is not None else ""
        if trail is None or trail.used:
            self._spoil(call)
        elif kind and not trail.kind and args[0].shape == trail.shape:
            trail.kind = kind
            self._trails.lay(result, trail)
        elif _summed(operator, args, trail):
            trail.summed = True
        else:
            self._spoil(call)

    def _spoil(self, call: Call) -> None:
        """What it was given is needed for something else."""
        for each in call.given:
            trail = self._trails.of(each)
            if trail is not None:
                trail.used = True


def _is_tensor(args: tuple[Any, ...]) -> bool:
    return bool(args) and isinstance(args[0], torch.Tensor)


def _all_pairs(args: tuple[Any, ...], result: torch.Tensor) -> bool:
    """Each of both is repeated, over a dimension of its own."""
    if len(args) != 2 or not all(isinstance(each, torch.Tensor) for each in args):
        return False
    wide = result.ndim > 2 and result.shape[-1] >= LEAST
    same = all(each.ndim and each.shape[-1] == result.shape[-1] for each in args)
    return wide and same and all(result.numel() >= LEAST * each.numel() for each in args)


def _kind(operator: Operator, args: tuple[Any, ...]) -> str:
    squared = (
        operator.name == "square"
        or (operator.name == "pow" and len(args) > 1 and args[1] == 2)
        or (operator.name == "mul" and len(args) > 1 and args[0] is args[1])
    )
    return "squares" if squared else "absolute" if operator.name == "abs" else ""


def _summed(operator: Operator, args: tuple[Any, ...], trail: Differences) -> bool:
    """The last dimension, and no other, is summed; of a norm, it is that of the differences."""
    norm = operator.name == "linalg_vector_norm" and len(args) > 2 and args[1] in (1, 2)
    dims = args[2] if norm else args[1] if len(args) > 1 else None
    right = args[0].shape == trail.shape and dims in ([-1], [len(trail.shape) - 1])
    if norm and right and not trail.kind:
        trail.kind = "squares" if args[1] == 2 else "absolute"
        return True
    return right and operator.name in SUMS and bool(trail.kind)


class PairwiseDifferencesProbe(OperatorProbe):
    """Writes ``differences``. Nothing of a tensor is read."""

    name = "differences"
    parts = ("differences",)
    passes = frozenset({"numbers"})
    unseen = "differences of all pairs were not followed through some operators"

    _watching: PairwiseDifferencesWatch | None = None

    def watch(self) -> None:
        """Follow differences."""
        self.context.writer.touch("differences")
        self._watching = PairwiseDifferencesWatch(self.fail)
        self.enter(self._watching)

    def step_end(self) -> None:
        for each in self._watching.end_step() if self._watching is not None else ():
            row = DifferencesRow(at=each.at, kind=each.kind, bytes=each.nbytes, graph=each.graph)
            row.size = each.shape[-1]
            self.context.add(row)

    def stop(self) -> None:
        super().stop()
        self._watching = None
