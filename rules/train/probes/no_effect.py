"""Calls without effect: weights after the mean, a softmax over one value, a shift before a norm."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from .dependence import COMPARED, Dependence
from .function_tape import FunctionTape, TapedCall

MEANS = COMPARED | frozenset(
    """
    mean poisson_nll_loss gaussian_nll_loss kl_div soft_margin_loss margin_ranking_loss
    hinge_embedding_loss cosine_embedding_loss triplet_margin_loss multi_margin_loss
    multilabel_margin_loss multilabel_soft_margin_loss
    """.split()
)
"""Functions that make one number of losses of samples."""


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
    ``itself``: a tensor is divided by its own mean over a dimension of size 1.
    ``axis``: a softmax over another dimension than its targets. ``shift``: a norm of
    a sum with something that the norm subtracts.
    """
    for call in tape.calls.values():
        own = _own_statistic(tape, call) if call.at is not None else None
        if own is not None:
            yield Dependence("itself", replace(own, at=call.at), 0, call.result.numel())
        if call.at is None or not call.gives_gradient:
            continue
        given = tuple(tensor for tensor, _ in call.parents)
        if weighs_a_scalar(call.name, given):
            loss, weights = sorted(given, key=torch.Tensor.dim)
            _, made = tape.origin(call, loss, OF_ONE_NUMBER)
            summed = _is_summed(tape, call)
            differ = bool((weights != weights.flatten()[0]).any())
            if made is not None and made.name in MEANS and summed and differ:
                yield Dependence("weights", call if made.at is None else made, 0, weights.numel())
        elif _is_over_one_value(call):
            yield Dependence("single", call, 0, 1)
            continue
        if call.name in ("softmax", "log_softmax"):
            axis = call.argument(1, "dim")
            other = _axis_of_targets(tape, call) if isinstance(axis, int) else None
            if other is not None and other != axis % call.parents[0][0].dim():
                yield Dependence("axis", call, axis % call.parents[0][0].dim(), other)
        shift = _shift_taken_away(tape, call) if call.name in NORMS else None
        if shift is not None:
            kind = "bias" if call.name in SOFTMAX else "shift"
            yield Dependence(
                kind, replace(call, at=call.at if shift.at is None else shift.at), 0, 0
            )


def _is_summed(tape: FunctionTape, call: TapedCall) -> bool:
    return any(
        each.name in ("sum", "mean") or (each.name in ("mul", "div") and _is_summed(tape, each))
        for each in tape.users(call)
    )


OF_ONE_NUMBER = frozenset({"pow", "exp", "neg", "sub", "sqrt", "log", "clamp"})
"""What a focal loss, and its like, make of the loss of a sample before they weigh it."""


def _is_over_one_value(call: TapedCall) -> bool:
    given, target = call.argument(0, "input"), call.argument(1, "target")
    if call.name == "cross_entropy":
        return given.dim() > 1 and given.shape[1] == 1 and not target.is_floating_point()
    axis = call.argument(1, "dim") if call.name in ("softmax", "log_softmax") else None
    return isinstance(axis, int) and call.result.numel() > 1 and call.result.shape[axis] == 1


def _own_statistic(tape: FunctionTape, call: TapedCall) -> TapedCall | None:
    """The statistic that a tensor is divided by, which is over dimensions of size 1 of that tensor."""
    if call.name != "div" or len(call.parents) != 2 or not call.result.dim():
        return None
    (one, _), (other, _) = call.parents
    made = tape.maker_before(call, other)
    of_one = made is not None and made.name in ("mean", "sum") and made.parents[0][0] is one
    return made if of_one and one.shape == other.shape and one.numel() > 1 else None


SOFTMAX = frozenset({"softmax", "log_softmax", "cross_entropy"})
NORMS = frozenset({"group_norm", "instance_norm", "layer_norm"}) | SOFTMAX
"""Functions that subtract a mean; a softmax divides by what is the same for all its values."""


def adds_a_shift(name: str, given: tuple[torch.Tensor, ...]) -> bool:
    """Whether a call adds two computed tensors, one of which is constant along some dimension."""
    return (
        name == "add"
        and len(given) == 2
        and given[0].dim() == given[1].dim() > 1
        and given[0].shape != given[1].shape
        and all(each.requires_grad for each in given)
    )


def _shift_taken_away(tape: FunctionTape, call: TapedCall) -> TapedCall | None:
    """The sum that a norm is given, or a part of which it is given, if one of its parts, which is
    computed, is constant over what the norm averages, and nothing else learns from it; else None.
    """
    given, first = call.parents[0][0], 2
    if call.name in SOFTMAX:
        first, axis = given.dim() - 1, call.argument(1, "dim")
        if (given.dim() != 2) if call.name == "cross_entropy" else axis not in (-1, first):
            return None
    elif call.name == "layer_norm":
        first = given.dim() - len(call.argument(1, "normalized_shape"))
    elif call.name == "group_norm" and call.argument(1, "num_groups") != given.shape[1]:
        return None
    if first >= given.dim() or given.shape[-1] == 1:
        return None
    waiting = [(call, given)]
    for user, tensor in waiting:  # grows as it is read
        made = tape.maker_before(user, tensor)
        alone = made is not None and sum(each.gives_gradient for each in tape.users(made)) == 1
        if made is None or not alone or made.name not in ("add", "masked_fill"):
            continue
        parts = [each for each, _ in made.parents]
        if made.name == "add" and any(_is_constant(each, given, first) for each in parts):
            return made
        waiting += [(made, each) for each in parts if each.shape == given.shape]
    return None


def _is_constant(part: torch.Tensor, given: torch.Tensor, first: int) -> bool:
    """Computed, and no bias: torch's own layers have some."""
    computed = part.requires_grad and not isinstance(part, torch.nn.Parameter)
    of_one = all(size == 1 for size in part.shape[first:])
    return computed and part.dim() == given.dim() and of_one


def _axis_of_targets(tape: FunctionTape, call: TapedCall) -> int | None:
    """The only dimension over which targets of log-probabilities sum to 1; None if unknown."""
    form, axis = call.result.shape, call.argument(1, "dim") % call.result.dim()
    for user in tape.users(call):
        for target, _ in user.parents if user.name in ("mul", "kl_div") else ():
            if target.requires_grad or not target.is_floating_point() or target.shape != form:
                continue
            if bool((target < 0).any()) or bool((target == target.flatten()[0]).all()):
                continue
            sums = [target.sum(each) for each in range(target.dim())]
            of_one = [n for n, each in enumerate(sums) if torch.allclose(each, each.new_ones(()))]
            if len(of_one) == 1 and of_one[0] != axis:
                return of_one[0]
    return None
