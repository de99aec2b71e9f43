"""Calls by which something has no effect: weights of samples after their mean, a softmax over one
value.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .dependence import COMPARED, Dependence
from .function_tape import Call, FunctionTape

MEANS = COMPARED | {"mean"}


def weighs_a_scalar(name: str, given: tuple[torch.Tensor, ...]) -> bool:
    """Whether a call multiplies one number of the graph by a tensor of data."""
    if name != "mul" or len(given) != 2:
        return False
    loss, weights = sorted(given, key=torch.Tensor.dim)
    learns = loss.requires_grad and not weights.requires_grad
    return learns and not loss.dim() and weights.dim() > 0 and weights.numel() > 1


def without_effect(tape: FunctionTape) -> Iterator[Dependence]:
    """``weights``: a mean over samples is multiplied by weights of single samples, which then act by
    their sum alone. ``single``: a softmax over one value, which is 1 whatever the value is.
    """
    for call in tape.calls.values():
        if call.at is None or not call.gives_gradient:
            continue
        given = tuple(tensor for tensor, _ in call.parents)
        if weighs_a_scalar(call.name, given):
            loss, weights = sorted(given, key=torch.Tensor.dim)
            made = tape.maker_before(call, loss)
            summed = any(each.name in ("sum", "mean") for each in tape.users(call))
            differ = bool((weights != weights.flatten()[0]).any())
            if made is not None and made.name in MEANS and summed and differ:
                yield Dependence("weights", call if made.at is None else made, 0, weights.numel())
        elif call.name in ("softmax", "log_softmax"):
            axis = call.argument(1, "dim")
            other = _axis_of_targets(tape, call, axis) if isinstance(axis, int) else None
            if other is not None:
                yield Dependence("axis", call, axis % call.result.dim(), other)
            several = call.result.numel() > 1
            if isinstance(axis, int) and several and call.result.shape[axis] == 1:
                yield Dependence("single", call, 0, 1)
        elif call.name == "cross_entropy":
            logits, target = call.argument(0, "input"), call.argument(1, "target")
            if logits.dim() > 1 and logits.shape[1] == 1 and not target.is_floating_point():
                yield Dependence("single", call, 0, 1)


def _axis_of_targets(tape: FunctionTape, call: Call, axis: int) -> int | None:
    """The only dimension over which the targets of log-probabilities sum to 1, where these go over
    another one; None where they agree, or where nothing says it.
    """
    form = call.result.shape
    for user in tape.users(call):
        for target, _ in user.parents if user.name in ("mul", "kl_div") else ():
            if target.requires_grad or not target.is_floating_point() or target.shape != form:
                continue
            if bool((target < 0).any()) or bool((target == target.flatten()[0]).all()):
                continue
            sums = [target.sum(each) for each in range(target.dim())]
            of_one = [n for n, each in enumerate(sums) if torch.allclose(each, each.new_ones(()))]
            if len(of_one) == 1 and of_one[0] != axis % target.dim():
                return of_one[0]
    return None
