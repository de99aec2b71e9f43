"""Distances of all pairs that are made through one tensor of all differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from auditor.capture.instruments.dispatch_modes import OperatorMode
from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.torch_private.autograd import current_node
from auditor.capture.probes.numerics.op_ranges_log import Trails
from auditor.capture.probes.numerics.op_ranges_mode import Operator
from auditor.capture.probes.operator_probe import OperatorProbe
from auditor.capture.probes.sync.origin_modes import tensors

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


class PairwiseDifferencesMode(OperatorMode):
    """Follows differences of tensors that are broadcast against one another to the sum over their
    last dimension.
    """

    def __init__(
        self, here: Callable[[], int | None], on_error: Callable[[Exception], None]
    ) -> None:
        super().__init__(on_error)
        self._here = here
        self._operators: dict[Any, Operator] = {}
        self._trails: Trails[Differences] = Trails()
        self.found: list[Differences] = []

    def watches(self, func: Any) -> bool:
        """Not in a backward."""
        return super().watches(func) and current_node() is None

    def before(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operator; None of a view."""
        operator = self._operators.get(func)
        if operator is None:
            operator = self._operators[func] = Operator(func)
        return None if operator.view else (operator, kwargs)

    def after(self, call: Any, args: tuple[Any, ...], result: Any) -> None:
        """Begin a trail at a difference of all pairs, and follow those there are."""
        operator, kwargs = call
        if operator.writes or not isinstance(result, torch.Tensor):
            self._spoil(args, kwargs)
        elif operator.name == "sub" and _all_pairs(args, result):
            self._spoil(args, kwargs)
            self._begin(args, result)
        else:
            self._follow(operator, args, kwargs, result)

    def end_step(self) -> list[Differences]:
        """Those that were summed and nothing else, and begin anew."""
        found, self.found = self.found, []
        self._trails.clear()
        return [each for each in found if each.summed and not each.used]

    def _begin(self, args: tuple[Any, ...], result: torch.Tensor) -> None:
        at = self._here()
        if at is not None:
            graph = torch.is_grad_enabled() and any(each.requires_grad for each in args)
            made = Differences(at, result.shape, result.nbytes, graph)
            self.found.append(made)
            self._trails.lay(plain(result), made)

    def _follow(
        self, operator: Operator, args: tuple[Any, ...], kwargs: Any, result: torch.Tensor
    ) -> None:
        trail = self._trails.of(plain(args[0])) if _is_tensor(args[:1]) else None
        kind = _kind(operator, args) if trail is not None else ""
        if trail is None or trail.used:
            self._spoil(args, kwargs)
        elif kind and not trail.kind and args[0].shape == trail.shape:
            trail.kind = kind
            self._trails.lay(plain(result), trail)
        elif _summed(operator, args, trail):
            trail.summed = True
        else:
            self._spoil(args, kwargs)

    def _spoil(self, args: tuple[Any, ...], kwargs: Any) -> None:
        """What these hold is needed for something else."""
        for each in tensors((*args, *kwargs.values())):
            trail = self._trails.of(plain(each))
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
    after = ("numerics",)  # which computes ranges: what is entered after it does not see that
    unseen = "differences of all pairs were not followed through some operators"

    _watching: PairwiseDifferencesMode | None = None

    def watch(self) -> None:
        """Follow differences."""
        self.context.writer.touch("differences")
        self._watching = PairwiseDifferencesMode(self.here, self.fail)
        self.enter(self._watching)

    def step_end(self) -> None:
        """Write the step's rows."""
        for each in self._watching.end_step() if self._watching is not None else ():
            row = DifferencesRow(at=each.at, kind=each.kind, bytes=each.nbytes, graph=each.graph)
            row.size = each.shape[-1]
            self.context.add(row)

    def stop(self) -> None:
        """Leave the mode."""
        self._patches.undo()
        self._watching = None
