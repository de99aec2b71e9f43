"""Turns of a loop, and what a turn needs of the turns before it."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from auditor.capture.instruments.live_objects import alive, live_instances, one_look
from auditor.capture.instruments.module_stack import live_modules
from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.storages import storage_key
from auditor.capture.instruments.torch_private.training import own_parameters
from auditor.capture.probes.optim.optimizer_hooks import live_optimizers, tensors_of

GATHERS = frozenset({"copy", "cat", "stack", "clone", "detach", "to_copy", "fill", "index_put"})
"""Operators that lay what turns gave side by side."""

SUM, LARGEST, SMALLEST, ANY, ALL = "sum", "largest", "smallest", "any", "all"

FOLDS = {
    "add": SUM,
    "sub": SUM,
    "sum": SUM,
    "mean": SUM,
    "foreach_add": SUM,
    "maximum": LARGEST,
    "fmax": LARGEST,
    "minimum": SMALLEST,
    "fmin": SMALLEST,
    "logical_or": ANY,
    "bitwise_or": ANY,
    "logical_and": ALL,
    "bitwise_and": ALL,
}
"""Operators that fold what turns gave into one value, in any order. Two sorts of them after each
other are no fold: a running maximum to which each turn adds needs the turn before.
"""

READS = frozenset({"local_scalar_dense", "is_nonzero", "equal", "nonzero"})
"""Operators by which Python may decide about the next turn."""


@dataclass(eq=False)
class Turns:
    """One operator at one line in one step, and what it was given in turn."""

    at: int
    op: str
    kind: str
    shapes: tuple[Any, ...]
    first: int
    last: int
    """The first turn and the latest one: numbers of operators of the step."""
    start: int
    """First operator of the latest turn: this one, or one of the ``heads`` before it."""
    heads: dict[int, int] = field(default_factory=dict)
    """Lines that ran right before the first turn, and how many operators before: where one runs
    again as far before a later turn, it belongs to that.
    """
    away: int = 0
    spoiled: bool = False
    """Sizes differ from turn to turn, a turn needs the one before, a backward runs in it, or it is
    a loader that loops.
    """
    chained: bool = False
    """What an earlier turn gave was read, or computed with in two turns one after the other: if
    another turn follows, it is needed there.
    """
    begins: Any = None
    """What the first turn was given: with it the loop begins anew."""
    seen: set[Any] = field(default_factory=set)
    """Which pieces, values or parameters."""
    elements: int = 0
    cut: int | None = None
    """The user's own line that cut the latest piece."""
    reduced: int = 0
    """Turns whose result a sum, a mean or an extreme took."""

    @property
    def n(self) -> int:
        """Turns so far."""
        return len(self.seen)


@dataclass(frozen=True)
class Turn:
    """What an operator is given that differs from turn to turn."""

    kind: str
    over: int | None
    """What the loop goes over: the storage of a tensor; 0 for all parameters."""
    value: Any
    shapes: tuple[Any, ...] = ()
    elements: int = 0
    cut: int | None = None


@dataclass(frozen=True)
class Carried:
    """How earlier turns of a loop went into a tensor: by which folds, and which operator computed
    with what they had come to (the first one; None while they are only gathered).
    """

    folds: frozenset[str] = frozenset()
    used: int | None = None


@dataclass(frozen=True)
class Made:
    """Which operator of the step made a tensor, and loops whose earlier turns went into it."""

    number: int
    carried: Mapping[Turns, Carried] = field(default_factory=dict)


def made_of(name: str, number: int, given: Iterable[Made], running: Iterable[Turns]) -> Made:
    """What operator ``number`` of the step makes of what it is given.

    A turn needs the one before where something is computed with what earlier turns came to, and
    with that again in a later turn. Computed with once it may be what an outer loop, or the code
    behind the loop, wanted of it.
    """
    known, carried = list(given), {}
    for turns in running:
        before = [each for each in (_carried(made, turns) for made in known) if each is not None]
        if before:
            carried[turns] = _joined(name, number, before, turns)
    return Made(number, carried)


def _carried(made: Made, turns: Turns) -> Carried | None:
    if turns in made.carried:
        return made.carried[turns]
    return Carried() if turns.first <= made.number < turns.start else None


def _joined(name: str, number: int, before: list[Carried], turns: Turns) -> Carried:
    fold = FOLDS.get(name)
    folds = frozenset[str]().union(*(each.folds for each in before), [fold] if fold else [])
    used = min((each.used for each in before if each.used is not None), default=None)
    if name in GATHERS or (fold is not None and len(folds) == 1):
        return Carried(folds, used)
    if name in READS or (used is not None and used < turns.start):
        turns.chained = True
    return Carried(folds, number if used is None else used)


# -- loop parameters -------------------------------------------------------------------------------
# Which tensors that an operator is given are whole parameters or their gradients.


FOREACH = frozenset(
    """
    abs add addcdiv addcmul clamp clamp_max clamp_min copy div exp lerp linalg_vector_norm maximum
    minimum mul neg norm pow reciprocal sign sqrt sub zero
    """.split()
)
"""Operators that torch has for a list of tensors, too: ``torch._foreach_add_`` and its like."""


class ParametersNow:
    """Parameters of modules and optimizers, where there are none all leaves that want a gradient,
    held weakly, and the storages that they and their gradients have now.
    """

    def __init__(self) -> None:
        self.stale = True
        """A backward ran since: gradients may be others."""
        self._held: list[Any] = []
        self._where: dict[tuple[int, int], tuple[int, int]] = {}

    def look(self) -> None:
        """Ask for all parameters that there are. Slow: asks all live objects."""
        with one_look():
            optimizers = live_optimizers()
            found = [
                each
                for module in live_modules()
                for each in own_parameters(module).values()
                if isinstance(each, torch.Tensor)
            ]
            for optimizer in optimizers:
                found.extend(tensors_of(optimizer))
            if not optimizers:  # what is updated by hand need be in no module either
                found.extend(each for each in live_instances(torch.Tensor) if _trained(each))
        each_once = {id(each): each for each in found}.values()
        self._held = [weak for each in each_once if (weak := _weakly(each)) is not None]
        self.stale = True

    def given_whole(self, given: list[torch.Tensor]) -> tuple[int, int] | None:
        """Which parameter an operator works on, one element for one: all that it is given has the
        parameter's shape or one element. None if it works on none so.
        """
        if self.stale:
            self._locate()
        large = [each for each in given if each.numel() != 1]
        if any(each.shape != large[0].shape for each in large[1:]):
            return None
        for each in large or given:
            place = _place_of(each)
            known = None if place is None else self._where.get(place)
            if known is not None and known[1] == each.numel():
                return place
        return None

    def _locate(self) -> None:
        self.stale = False
        self._where.clear()
        for number, weak in enumerate(self._held):
            parameter = alive(weak)
            for each in () if parameter is None else (parameter, parameter.grad):
                place = None if each is None else _place_of(plain(each))
                if place is not None:
                    self._where[place] = number, each.numel()


def _trained(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and tensor.is_leaf and not hasattr(tensor, "fake_mode")


def _weakly(tensor: torch.Tensor) -> Any:
    try:
        return weakref.ref(tensor)
    except TypeError:
        return None


def _place_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    key = storage_key(tensor)
    return None if key is None else (key, int(tensor.storage_offset()))
