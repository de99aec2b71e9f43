"""Losses given the result of an activation that they apply, or scores instead of logarithms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .function_tape import FunctionTape, TapedCall, replaced
from .second_gradient import MIXES, Again, Change

PASSED = frozenset(
    """
    view reshape squeeze unsqueeze permute transpose t T mT flatten unflatten contiguous float to
    type double half bfloat16 getitem clone masked_select index_select movedim swapaxes
    """.split()
)
"""What leaves numbers as they are."""

JOINS = frozenset({"cat", "concat", "concatenate"})

TWICE = {
    "cross_entropy": "softmax",
    "log_softmax": "softmax",
    "binary_cross_entropy_with_logits": "sigmoid",
    "multilabel_soft_margin_loss": "sigmoid",
}
"""What each loss applies itself, or its logarithm."""

ASKS_LOGARITHMS = frozenset({"nll_loss", "kl_div", "ctc_loss"})

NAMES = frozenset(TWICE) | ASKS_LOGARITHMS
ACTIVATIONS = frozenset(TWICE.values())

SUM = 1e-2
"""How far the sum of probabilities may be from 1: bfloat16 has 8 bits."""


Made = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Misfed:
    """A loss that was given something else than it asks for, and how to give it that."""

    change: Change
    activation: TapedCall | None


def misfed(tape: FunctionTape, call: TapedCall) -> Misfed | None:
    """What a loss was given in place of what it asks for; None if that is right or unknown."""
    given = call.argument(0, "input")
    if call.name not in NAMES or call.at is None or not isinstance(given, torch.Tensor):
        return None
    if given.dim() == 0:
        return None
    path, maker = behind(tape, call, given)
    if maker is not None and maker.name in JOINS:
        parts = [each for each, _ in maker.parents if torch.equal(each, given)]
        path, maker = behind(tape, maker, parts[0]) if len(parts) == 1 else ([], None)
    if maker is None or not maker.gives_gradient:
        return None
    axis = _class_axis(call, given)
    if maker.name == "softmax" and not _is_distribution(given, axis):
        return None
    if maker.name == TWICE.get(call.name):
        return Misfed(_without(maker, path), maker)
    if call.name not in ASKS_LOGARITHMS:
        return None
    if maker.name == "softmax":
        least = torch.finfo(given.dtype).tiny
        return Misfed(_given(lambda shares: shares.clamp_min(least).log()), maker)
    if maker.name in MIXES and bool((given > 0).any()):
        return Misfed(_given(lambda scores: scores.log_softmax(axis)), None)
    return None


def behind(
    tape: FunctionTape, call: TapedCall, given: torch.Tensor
) -> tuple[list[TapedCall], TapedCall | None]:
    """The calls that only gave the numbers of a tensor another form, and the one that made them."""
    path: list[TapedCall] = []
    maker = tape.maker(given)
    while maker is not None and maker.name in PASSED and maker.number < call.number:
        path.insert(0, maker)
        source = maker.argument(0, "input")
        maker = tape.maker_before(maker, source) if isinstance(source, torch.Tensor) else None
    return path, maker


def _class_axis(call: TapedCall, given: torch.Tensor) -> int:
    if call.name in ("kl_div", "ctc_loss"):
        return -1
    if call.name == "log_softmax":
        dim = call.argument(1, "dim")
        return dim if isinstance(dim, int) else -1
    return 1 if given.dim() > 1 else 0


def _is_distribution(given: torch.Tensor, axis: int) -> bool:
    sums = given.detach().double().sum(axis)
    return bool((given >= 0).all()) and bool(((sums - 1).abs() < SUM).all())


def _given(made: Made) -> Change:
    return lambda again: again.with_input(made)


def _without(activation: TapedCall, path: list[TapedCall]) -> Change:
    """The loss of what the activation was given, in the same form."""

    def change(again: Again) -> Any:
        old, value = activation.result, again.now(activation.argument(0, "input"))
        for call in path:
            args, kwargs = (
                replaced(each, partial(_swapped, old, value)) for each in (call.args, call.kwargs)
            )
            old, value = call.result, call.function(*args, **kwargs)
        return again.with_input(lambda _: value)

    return change


def _swapped(old: torch.Tensor, new: torch.Tensor, each: torch.Tensor) -> torch.Tensor:
    return new if each is old else each
