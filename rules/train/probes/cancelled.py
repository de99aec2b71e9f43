"""Terms that a softmax cancels, since only linear functions stand between: each of its alternatives
gets the same number more.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .function_tape import FunctionTape, TapedCall, only_axis

SOFTMAX = frozenset({"softmax", "log_softmax", "cross_entropy"})

FORMING = frozenset(
    "squeeze unsqueeze view reshape flatten transpose permute mT contiguous to float".split()
)
"""Functions that give numbers another form."""

SUMS = frozenset({"sum", "mean"})

SPREADING = frozenset({"expand", "expand_as", "repeat"})
"""Functions that give each alternative the same numbers."""


HIDDEN = -1e3
"""The exponential of this is zero in every type: a value that hides an alternative."""


def cancelled_term(tape: FunctionTape, softmax: TapedCall) -> TapedCall | None:
    """The sum, or concatenation, one part of which is the same for all alternatives of a softmax and
    goes through linear functions only on its way there. None without one, or where something else
    reads what is on this way.
    """
    given = softmax.parents[0][0]
    axis = _axis(softmax, given)
    if axis is None or given.shape[axis] < 2 or not given.requires_grad:
        return None
    way = [(softmax, given, axis)]
    for user, tensor, along in way:  # grows as it is read
        made = tape.maker_before(user, tensor)
        if made is None or made.result is not tensor or not made.parents:
            continue
        if not all(_reads_alike(user, each) for each in tape.users(made)):
            continue
        if any(_is_the_same(tape, made, part, along) for part, _ in made.parents):
            return made
        way += ((made, *each) for each in _linear_in(made, along))
    return None


def _axis(softmax: TapedCall, given: torch.Tensor) -> int | None:
    if softmax.name == "cross_entropy":
        return min(1, given.dim() - 1)
    axis = softmax.argument(1, "dim")
    return axis % given.dim() if isinstance(axis, int) and given.dim() else None


def _reads_alike(user: TapedCall, other: TapedCall) -> bool:
    """It is the same reader, or another softmax over the same numbers, or trains nothing."""
    if other is user or not other.gives_gradient:
        return True
    given = user.parents[0][0]
    both = SOFTMAX.issuperset((user.name, other.name)) and other.parents[0][0] is given
    return both and _axis(user, given) == _axis(other, given)


def _linear_in(made: TapedCall, axis: int) -> Iterator[tuple[torch.Tensor, int]]:
    """What a linear function was given for each alternative, and along which dimension."""
    first, result = made.parents[0][0], made.result
    size = result.shape[axis]
    if made.name in ("add", "sub", "mul", "div"):
        places = ((each, axis - result.dim() + each.dim()) for each, _ in made.parents)
        rows = [(each, at) for each, at in places if at >= 0 and each.shape[at] == size]
        if made.name in ("add", "sub") or (len(rows) == 1 and "mul" in made.name):
            yield from rows
        elif len(rows) == 1 and rows[0][0] is first:
            yield rows[0]
    elif made.name == "masked_fill":
        value = made.argument(2, "value")
        if isinstance(value, (int, float)) and value <= HIDDEN:
            yield first, axis
    elif made.name == "linear":
        if axis < result.dim() - 1:
            yield first, axis
    elif made.name == "getitem":
        if first.dim() > axis and first.shape[: axis + 1] == result.shape[: axis + 1]:
            yield first, axis
    elif made.name in FORMING or made.name in SUMS:
        along = only_axis(first, size)
        if along is not None and only_axis(result, size) is not None:
            yield first, along


def _is_the_same(tape: FunctionTape, made: TapedCall, part: torch.Tensor, axis: int) -> bool:
    """A part of a sum or concatenation differs between samples, but not between alternatives."""
    result = made.result
    joins = made.name == "cat" and made.argument(1, "dim", 0) % result.dim() != axis
    if axis == 0 or not (joins or made.name == "add") or part.dim() != result.dim():
        return False
    before = tape.maker_before(made, part)
    spread = before is not None and before.name in SPREADING
    source = before.parents[0][0] if before is not None and spread else part
    learned = part.requires_grad and not isinstance(part, torch.nn.Parameter)
    if source.dim() != result.dim() or not (learned or (joins and part.is_floating_point())):
        return False
    of_samples = source.shape[0] == result.shape[0] > 1 == source.shape[axis]
    return of_samples and bool((source != source[:1]).any())
