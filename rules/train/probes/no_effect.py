"""Calls by which something has no effect: weights of samples after their mean, a softmax over one
value.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .dependence import COMPARED, Dependence
from .function_tape import FunctionTape

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
                yield Dependence("weights", call, 0, weights.numel())
        elif call.name in ("softmax", "log_softmax"):
            axis = call.argument(1, "dim")
            several = call.result.numel() > 1
            if isinstance(axis, int) and several and call.result.shape[axis] == 1:
                yield Dependence("single", call, 0, 1)
        elif call.name == "cross_entropy":
            logits, target = call.argument(0, "input"), call.argument(1, "target")
            if logits.dim() > 1 and logits.shape[1] == 1 and not target.is_floating_point():
                yield Dependence("single", call, 0, 1)
