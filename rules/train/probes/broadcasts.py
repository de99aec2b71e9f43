"""Accidental broadcasts: each prediction meets every target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from .function_tape import TapedCall, replaced
from .second_gradient import Again, Change, Tail

LOSSES = frozenset("mse_loss l1_loss smooth_l1_loss huber_loss poisson_nll_loss kl_div".split())
"""Losses of torch's that broadcast. Others refuse."""

OPERATORS = frozenset({"sub"})
"""Of the operators the one that compares."""

FACTORS = frozenset({"mul", "div"})
"""By which samples are weighed: a loss for each of them, of one column, where only sums follow."""


ONE_BY_ONE = frozenset(
    """
    pow square abs neg mul div add sub exp log log1p sqrt clamp clamp_min clamp_max clip where float
    double half to type relu softplus sigmoid tanh cosh logcosh logsigmoid maximum minimum
    nan_to_num positive contiguous clone lt gt le ge detach
    """.split()
)
"""What a difference may go through, element by element, on its way to the sum."""

EITHER = frozenset({"max", "min"})
"""Elementwise functions of two tensors; with one tensor they return its extreme."""

SUMS = frozenset({"mean", "sum", "nanmean", "nansum"})
RESHAPED = frozenset("view reshape flatten squeeze ravel".split())
MADE_FOR_IT = frozenset("unsqueeze getitem expand expand_as repeat broadcast_to".split())
"""What may give a tensor another dimension on purpose, where it is in the same line."""


NAMES = ("input", "target")
"""Of a loss's first two arguments."""


def may_broadcast(name: str, given: tuple[torch.Tensor, ...]) -> bool:
    """True of a call that compares two tensors, each number of one with each of the other, where
    one has the sizes of the other (or some of them) in another place.
    """
    compares = name in LOSSES or name in OPERATORS or name in FACTORS
    return compares and len(given) >= 2 and _spreads(*given[:2])


def _spreads(one: torch.Tensor, two: torch.Tensor) -> bool:
    few, many = sorted((one, two), key=torch.numel)
    if one.dim() == two.dim() or few.numel() < 2 or _aligned(few, many) is None:
        return False
    try:
        return bool(torch.broadcast_shapes(one.shape, two.shape).numel() > many.numel())
    except RuntimeError:
        return False


def _aligned(few: torch.Tensor, many: torch.Tensor) -> list[int] | None:
    left = [size for size in few.shape if size != 1]
    shape = [left.pop(0) if left[:1] == [size] else 1 for size in many.shape]
    return None if left else shape


@dataclass(frozen=True)
class Spread:
    """A constant that was broadcast against what the model gave, and the shape that was meant."""

    call: TapedCall
    constant: torch.Tensor
    shape: list[int]


def broadcast_in(tail: Tail, call: TapedCall, others: Iterable[TapedCall]) -> Spread | None:
    """The constant of a call of the tail whose operands were broadcast without need; None if the
    program means it.

    ``others`` are the calls of the tape that made no gradient, among them what the target came from.
    """
    if call.at is None or not may_broadcast(call.name, tuple(each for each, _ in call.parents)):
        return None
    one, two = (each for each, _ in call.parents[:2])
    if one.requires_grad == two.requires_grad or _is_on_purpose(tail, call, one, two, others):
        return None
    if call.name in FACTORS and not _weighs_samples(tail, call, one, two):
        return None
    constant, index = (two, 1) if one.requires_grad else (one, 0)
    if call.argument(index, NAMES[index]) is not constant:  # ``__rsub__`` of something else
        return None
    shape = _aligned(constant, (one, two)[1 - index])
    if shape is None:  # the model gave fewer numbers
        return None
    return Spread(call, constant, shape)


def without_broadcasts(tail: Tail, spread: Iterable[Spread]) -> dict[int, Change]:
    """How to compute the calls that these constants go into with the shapes that were meant, by the
    calls' numbers. What compares a constant with another one of its own shape stays.
    """
    meant = {id(each.constant): each.shape for each in spread}

    def shaped(tensor: torch.Tensor) -> torch.Tensor:
        shape = meant.get(id(tensor))
        return tensor if shape is None else tensor.reshape(shape)

    def change(again: Again) -> Any:
        return again.function(*replaced(again.args, shaped), **replaced(again.kwargs, shaped))

    changed: dict[int, Change] = {}
    for call in tail.calls:
        given = [each for each, _ in call.parents]
        sizes = {each.shape for each in given if id(each) in meant}
        if sizes and not any(each.shape in sizes for each in given if id(each) not in meant):
            changed[call.number] = change
    return changed


def _weighs_samples(tail: Tail, call: TapedCall, one: torch.Tensor, two: torch.Tensor) -> bool:
    """A one-column loss is multiplied by a row and summed: all losses times all weights."""
    losses, weights = (one, two) if one.requires_grad else (two, one)
    rows = losses.shape[:1] == weights.shape[:1] == (losses.numel(),) == (weights.numel(),)
    if not rows or 1 not in (losses.dim(), weights.dim()):
        return False
    if call.name == "div" and weights is one:
        return False
    made = {id(result) for each in tail.calls if each.name in LOSSES for result in each.results}
    own, scales = {id(call.result)}, True
    for each in tail.calls:
        if each.number > call.number and not own.isdisjoint(id(given) for given, _ in each.parents):
            scales = scales and each.name in {*SUMS, *RESHAPED, "mul", "div"}
            own |= {id(each.result)} if each.result.numel() > 1 else set()
    differ = bool((weights != weights.flatten()[0]).any())
    return id(losses) in made and scales and differ


def _is_on_purpose(
    tail: Tail, call: TapedCall, one: torch.Tensor, two: torch.Tensor, others: Iterable[TapedCall]
) -> bool:
    if call.name in LOSSES and call.result.dim() == 0:
        return False
    beside = {id(one), id(two)}
    for each in (*tail.calls, *others):
        same = each.spot == call.spot and id(each.result) in beside
        picks = each.name == "getitem" and each.result.dim() <= each.parents[0][0].dim()
        if same and each.name in MADE_FOR_IT and not picks:
            return True
    return not is_only_summed(tail, call, max(one.numel(), two.numel()))


def is_only_summed(tail: Tail, call: TapedCall, most: int) -> bool:
    """All that becomes of the result is a sum or a mean over it, element by element before, without
    a constant of more than ``most`` numbers that does not come from it.
    """
    own = {id(call.result)}
    for user in tail.calls:
        given = [each for each, _ in user.parents]
        if user.number <= call.number or own.isdisjoint(map(id, given)):
            continue
        if user.name not in SUMS:
            either = user.name in EITHER and len(given) > 1
            if not either and user.name not in ONE_BY_ONE and user.name not in RESHAPED:
                return False
            strange = (each for each in given if id(each) not in own and not each.requires_grad)
            if any(each.numel() > most for each in strange):
                return False  # a mask or weights for all pairs
        if user.result.numel() > 1:
            own.add(id(user.result))
    return True
